"""The verdict: who was first, at which line, and what the others waited for, in one sentence.

Every rank that waits, or failed because of others, points to those it waited for, or was told of. Whoever the first
of them points to, from one to the next, and who points to nobody, was first; if nobody is, they wait in a circle.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shardwise.engine.recording.record import Entry, RankRecord
from shardwise.engine.recording.recorder import ranks_text
from shardwise.engine.recording.timeline import Meeting, Timeline
from shardwise.pictures.plan import time_text

OF_OTHERS = re.compile(r"(\w+\.)*(RankLost|CollectiveError|CollectiveTimeout|CollectiveMismatch)\b")
NAMED = 3  # calls of those who waited that are named
LEFT = "left with "
GONE_ON = "had gone on after "  # in what a rank says of its end
GOES_ON = re.compile(r"rank ([0-9]{1,7}) goes on after ")  # in what others heard of it


@dataclass(frozen=True)
class Verdict:
    """What happened: its kind, who was first, their line, who waited for them, and all of it as a sentence."""

    kind: str
    first: tuple[int, ...]
    line: str
    waiters: tuple[int, ...]
    sentence: str

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True)
class _Wait:
    # Why a rank does not go on: a call that failed, or that it is in, and those it is due to.
    rank: int
    entry: Entry
    targets: tuple[int, ...]
    time: float  # when it was known; of a call that did not fail, when it began

    @property
    def kind(self) -> str:
        match = OF_OTHERS.match(self.entry.failure or "")
        return match[2] if match else "" if self.entry.failure is None else "own"


def judge(timeline: Timeline) -> Verdict:
    """Return who was first, and what the others waited for."""
    return _Judge(timeline).judge()


class _Judge:
    def __init__(self, timeline: Timeline) -> None:
        self.timeline, self._records = timeline, timeline.records
        waits = {rank: self._wait_of(record) for rank, record in timeline.records.items()}
        self.waits = {rank: wait for rank, wait in waits.items() if wait is not None}

    def judge(self) -> Verdict:
        known = sorted((w for w in self.waits.values() if w.kind), key=lambda wait: wait.time)
        departures = [r for r in self._records.values() if self._left_by_itself(r)]
        departure = min(departures, key=lambda r: r.ended or 0.0, default=None)
        mismatch = self._first_mismatch()
        if departure is not None and (not known or (departure.ended or 0.0) <= known[0].time):
            return self._departure([departure.rank], "")
        if known and known[0].kind == "CollectiveMismatch":
            return self._mismatch(known[0].targets)
        if mismatch is not None and not (known and known[0].time < mismatch.last.began):
            return self._mismatch([entry.rank for entry in mismatch.entries])
        for wait in known or sorted(self.waits.values(), key=lambda wait: wait.time):
            if wait.kind == "own":
                return self._departure([wait.rank], wait.kind)
            roots, circle = self._roots(
                wait.targets,
                wait.kind == "RankLost" or (not wait.kind and any(map(self.timeline.is_alive, self.waits))),
            )
            if roots:
                return self._departure(roots, wait.kind)
            if circle:
                return self._circle(circle)
        return self._departure([known[0].rank], "own") if known else self._nobody_waits()

    # -- who waits for whom ------------------------------------------------------------------------

    def _wait_of(self, record: RankRecord) -> _Wait | None:
        failed = next((entry for entry in record.entries if entry.failure is not None), None)
        entry = failed or record.last
        if entry is None or not (failed or entry.is_open):
            return None
        targets = entry.waits or self._due(entry)
        return _Wait(record.rank, entry, targets, entry.began if entry.failed is None else entry.failed)

    def _due(self, entry: Entry) -> tuple[int, ...]:
        # Those who had not come; or who had, and failed or died in it.
        absent = tuple(rank for rank in self.timeline.missing(entry) if rank != entry.rank)
        if absent or entry.agreed is None or entry.is_done:
            return absent
        others = [record for record in self._records.values() if record.rank != entry.rank and record.last is not None]
        return tuple(r.rank for r in others if r.last and r.last.key == entry.key and self._is_at_fault(r, r.last))

    def _is_at_fault(self, record: RankRecord, last: Entry) -> bool:
        return self._is_gone(record.rank) or not (last.failure is None or OF_OTHERS.match(last.failure))

    def _is_gone(self, rank: int) -> bool:
        return self.timeline.state(rank) in ("killed", "no end")

    def _left_by_itself(self, record: RankRecord) -> bool:
        # With an error that is not about others, and that no call had before.
        failed = any(entry.failure is not None for entry in record.entries)
        return record.end == "failed" and not failed and not OF_OTHERS.match(_farewell(record).removeprefix(LEFT))

    def _roots(self, targets: Iterable[int], lost: bool) -> tuple[list[int], list[int]]:
        # Those at the ends of all chains of waits, and the first circle; `lost` says that who was lost is an end.
        roots, circle, seen = list[int](), list[int](), set[int]()
        stack = [(rank, [rank]) for rank in reversed(list(targets))]
        while stack:
            rank, path = stack.pop()
            onwards = () if lost and self._is_gone(rank) else self._onwards(rank)
            if rank in seen:
                continue
            seen.add(rank)
            if not onwards:
                roots.append(rank)
            for other in onwards:
                if other in path:
                    circle = circle or path[path.index(other) :]
                else:
                    stack.append((other, [*path, other]))
        return sorted(roots), circle

    def _onwards(self, rank: int) -> tuple[int, ...]:
        wait = self.waits.get(rank)
        return () if wait is None or wait.kind == "own" or rank in wait.targets else wait.targets

    # -- what is said ------------------------------------------------------------------------------

    def _departure(self, first: Sequence[int], kind: str) -> Verdict:
        # Of `first` one can tell why others waited; `kind` is that of the error in which they were told so.
        waits, name = self._waits_for(first), self.timeline.state(first[0])
        be = "was" if len(first) == 1 else "were"
        word = f"{be} first"
        if kind == "CollectiveTimeout":
            name, word = "late", f"{be} late"
        elif not kind and all(map(self.timeline.is_alive, first)):
            name, word = "waiting", f"{'is' if len(first) == 1 else 'are'} waited for"
        sentence = f"{name_ranks(first)} {word}: {self._tell_of(first, kind)}{self._others(first, waits)}."
        return Verdict(name, tuple(first), self._place(first[0]), _ranks_of(waits), sentence)

    def _tell_of(self, first: Sequence[int], kind: str) -> str:
        rank = first[0]
        record, it = self._records.get(rank), "it" if len(first) == 1 else "each"
        if record is None:
            return f"{it} has no record, as it never started, or could not write one"
        wait = self.waits.get(rank)
        where = self._where(record)
        if kind == "CollectiveTimeout":
            stopped = f"{it} is stopped" if self.timeline.state(rank) == "stopped" else f"{it} did not come in time"
            return f"{stopped}; it was {where}"
        if wait is not None and wait.kind and (kind == "own" or wait.kind == "own" or rank in wait.targets):
            failure = first_line(wait.entry.failure or "an error")
            own = failure.partition(f"RankLost: rank {rank} ")[2]  # what it told the others of itself
            return f"{it} {own or f'failed with {failure}'}, {where}"
        state = self.timeline.state(rank)
        if state == "failed":
            return f"{it} {_farewell(record) or 'left with an error'}, {where}"
        if state == "left":
            return f"{it} {_farewell(record) or 'left, cleanly'}, {where}"
        if state == "killed":
            return f"{it} was killed or crashed (no end in its record), {where}"
        if state == "no end":
            return f"{it} was killed, crashed, or still runs on {record.host} (no end in its record), {where}"
        return f"{it} {'is stopped' if state == 'stopped' else 'runs'}, {where}"

    def _where(self, record: RankRecord) -> str:
        entry = record.last
        seen = f"at {short(record.place)}" * bool(record.place)
        if entry is None:
            return f"before its first call {seen}".rstrip()
        if not entry.is_done:
            return f"in {entry} at {short(entry.line)}"
        later = f", last seen {seen}" if seen and record.beat > (entry.ended or 0.0) else ""
        return f"after {entry} at {short(entry.line)}{later}"

    def _place(self, rank: int) -> str:
        record = self._records.get(rank)
        if record is None:
            return ""
        entry = record.last
        if entry is not None and (not entry.is_done or (entry.ended or 0.0) >= record.beat):
            return entry.line
        return record.place or (entry.line if entry else "")

    def _waits_for(self, first: Iterable[int]) -> list[_Wait]:
        # All that wait for some ranks, directly or not.
        reached, out = set(first), list[_Wait]()
        while new := [w for r, w in self.waits.items() if r not in reached and reached & set(w.targets)]:
            reached |= {wait.rank for wait in new}
            out += new
        return sorted(out, key=lambda wait: wait.rank)

    def _others(self, first: Sequence[int], waits: Sequence[_Wait]) -> str:
        calls: dict[tuple[bool, bool, str, str], list[_Wait]] = {}
        for wait in waits:
            indirect = not set(wait.targets) & set(first)
            calls.setdefault((wait.entry.is_done, indirect, wait.entry.step, wait.entry.line), []).append(wait)
        texts: list[str] = []
        for (done, indirect, step, line), some in sorted(calls.items(), key=lambda pair: (pair[0][:2], -len(pair[1]))):
            others = sorted({rank for wait in some for rank in wait.targets})
            whom = name_ranks(others) if indirect else "it" if len(first) == 1 else "them"
            seconds = max(self._end(wait) - wait.entry.began for wait in some)
            ongoing = any(wait.entry.is_open and self.timeline.is_alive(wait.rank) for wait in some)
            verb = ("waits" if len(some) == 1 else "wait") if ongoing else "waited"
            names, where = name_ranks([wait.rank for wait in some]), f"{step} at {short(line)}"
            waiting = f"{names} {verb} for {whom} in {where} for {time_text(max(0.0, seconds))}"
            texts.append(f"{names} heard of it after {where}" if done else waiting)
        left = len(texts) - NAMED
        more = [f"others in {left} more call{'s' * (left > 1)}"] * (left > 0)
        return "".join(f"; {text}" for text in texts[:NAMED] + more)

    def _end(self, wait: _Wait) -> float:
        return self.timeline.now if wait.entry.failed is None else wait.entry.failed

    def _circle(self, circle: Sequence[int]) -> Verdict:
        texts: list[str] = []
        for place, rank in enumerate(circle):
            entry, other = self.waits[rank].entry, circle[(place + 1) % len(circle)]
            texts.append(f"rank {rank} for rank {other} in {entry} at {short(entry.line)}")
        waits = [w for w in self._waits_for(circle) if w.rank not in circle]
        verb = "wait" if any(map(self.timeline.is_alive, circle)) else "waited"
        more = texts[6:] and [f"and {len(texts) - 6} more"]
        circle_text = ", ".join([*texts[:6], *more]) + self._others(circle, waits)
        sentence = f"{name_ranks(sorted(circle))} {verb} for each other in a circle: {circle_text}."
        return Verdict("circle", tuple(circle), self.waits[circle[0]].entry.line, _ranks_of(waits), sentence)

    def _first_mismatch(self) -> Meeting | None:
        return next((meeting for meeting in self.timeline.meetings if meeting.is_mismatch), None)

    def _mismatch(self, ranks: Iterable[int]) -> Verdict:
        entries = self._entries_at_odds(ranks)
        calls: dict[tuple[str, str, int, int | None], list[int]] = {}
        for rank, entry in sorted(entries.items()):
            calls.setdefault((entry.what, entry.line, entry.digest, entry.iteration), []).append(rank)
        counts = Counter({call: len(some) for call, some in calls.items()})
        ordered = [call for call, _ in counts.most_common()][::-1]  # those who are alone first
        whats = _words_that_differ([what for what, *_ in ordered])
        iterations = len({iteration for *_, iteration in ordered}) > 1
        texts: list[str] = []
        for call, what in list(zip(ordered, whats, strict=True))[:NAMED]:
            where = "no iteration" if call[3] is None else f"iteration {call[3]}"
            texts.append(f"{name_ranks(calls[call])} to {what}{f' in {where}' * iterations} at {short(call[1])}")
        left = len(ordered) - NAMED
        texts += [f"others to {left} more call{'s' * (left > 1)}"] * (left > 0)
        alone = len(ordered) > 1 and counts[ordered[0]] < counts[ordered[1]]
        first = (
            calls[ordered[0]] if alone else [r for r in sorted(entries) if self._passed_over([r])] or sorted(entries)
        )
        waits = [wait for wait in self._waits_for(entries) if wait.rank not in entries]
        others = self._others(sorted(entries), waits) + self._passed_over(sorted(entries))
        sentence = f"{name_ranks(sorted(entries))} came to different calls: {', '.join(texts)}{others}."
        return Verdict("mismatch", tuple(first), ordered[0][1] if ordered else "", _ranks_of(waits), sentence)

    def _entries_at_odds(self, ranks: Iterable[int]) -> dict[int, Entry]:
        # The calls of those who disagree; if they are of one number in one group, also of others who came to it.
        entries = {rank: entry for rank in ranks if (entry := self._entry_of(rank)) is not None}
        keys = {entry.key for entry in entries.values()}
        if len(keys) == 1:
            entries = {e.rank: e for m in self.timeline.meetings if m.first.key in keys for e in m.entries} | entries
        return entries

    def _passed_over(self, ranks: Iterable[int]) -> str:
        # What those who disagree had caught before, which may be why: they say it when they end, and others heard it.
        texts = {rank: self._records[rank].cause.partition(GONE_ON)[2] for rank in ranks}
        for event in self.timeline.events:
            match = GOES_ON.match(event.text)
            if match and int(match[1]) in texts:
                texts[int(match[1])] = texts[int(match[1])] or event.text[match.end() :]
        return "".join(f"; rank {rank} {GONE_ON}{first_line(text)}" for rank, text in texts.items() if text)

    def _entry_of(self, rank: int) -> Entry | None:
        if rank in self.waits:
            return self.waits[rank].entry
        record = self._records.get(rank)
        return record.last if record else None

    def _nobody_waits(self) -> Verdict:
        timeline = self.timeline
        states = Counter(timeline.state(rank) for rank in timeline.records)
        gone = sorted(filter(self._is_gone, timeline.records))
        everyone = f"all {timeline.size} ranks" if timeline.size > 1 else "the only rank"
        if gone:
            return self._departure(gone, "")
        if timeline.absent and not states["running"]:
            return self._departure(timeline.absent, "")
        failed = [record for record in timeline.records.values() if record.end == "failed"]
        if failed:
            return self._departure([min(failed, key=lambda record: record.ended or 0.0).rank], "")
        if states["running"] or states["stopped"]:
            sentence = (
                f"nothing is wrong: {states['running']} of {timeline.size} ranks run, and none waits for another."
            )
            return Verdict("running", (), "", (), sentence)
        return Verdict("nothing", (), "", (), f"nothing went wrong: {everyone} ended cleanly.")


def short(line: str) -> str:
    """Return a line of a program with the last two parts of its path.

    >>> short("/data/someone/project/train.py:31"), short("")
    ('project/train.py:31', 'an unknown line')
    """
    return "/".join(line.split("/")[-2:]) or "an unknown line"


def _words_that_differ(whats: Sequence[str]) -> list[str]:
    # What is in few words, if that differs; else what more is said of one and not of all.
    parts = [what.split("; ") for what in whats]
    if len({first for first, *_ in parts}) > 1:
        return [first for first, *_ in parts]
    return [
        ", ".join([first, *(word for word in more if any(word not in other for other in parts))])
        for first, *more in parts
    ]


def _farewell(record: RankRecord) -> str:
    return first_line(record.cause).removeprefix("it ")


def name_ranks(ranks: Sequence[int]) -> str:
    """Return the ranks of a sentence.

    >>> name_ranks([2]), name_ranks([0, 2]), name_ranks([0, 1, 2, 3, 5])
    ('rank 2', 'ranks 0, 2', 'ranks 0-3,5')
    """
    few = ", ".join(map(str, ranks)) if len(ranks) <= 4 else ranks_text(ranks)
    return f"rank{'s' * (len(ranks) > 1)} {few}"


def _ranks_of(waits: Iterable[_Wait]) -> tuple[int, ...]:
    return tuple(sorted(wait.rank for wait in waits))


def first_line(text: str) -> str:
    """Return the first line of a text, if it is not very long.

    >>> first_line(" rank 2 was lost.\\n  look at its output.")
    'rank 2 was lost.'
    """
    return text.strip().partition("\n")[0][:200]


def ranks_of_text(ranks: Sequence[int], count: int) -> str:
    """Return ranks, of which only the first may be known.

    >>> ranks_of_text((1, 2, 3), 3), ranks_of_text((1, 5), 7)
    ('1-3', '1,5 and 5 more')
    """
    return ranks_text(ranks) + f" and {count - len(ranks)} more" * (count > len(ranks))
