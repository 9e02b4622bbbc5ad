"""Rows of the table in docs/faults.md: what can happen, what is said then, and the seconds that it took in a test."""

import json
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One situation: what happens, and what all others are told."""

    happens: str
    said: str


ROWS = {
    "killed": Row("A process is killed", "`RankLost`: its connection closed without a goodbye"),
    "stopped": Row("A process is stopped (SIGSTOP)", "`CollectiveTimeout`, after the timeout"),
    "raises": Row("A process raises, and nobody catches it", "`RankLost`: it left with that error"),
    "leaves": Row("A process comes to its end while others still call it", "`RankLost`: it left at its end"),
    "no memory": Row("A process has no memory for a result", "`RankLost`: it gave up, with the MemoryError"),
    "silent": Row(
        "A process is stopped, or one long call holds its interpreter, or it is busy",
        "`CollectiveTimeout`, after the timeout, with what the system knows of each",
    ),
    "stopped inside": Row(
        "A process is stopped while data moves, and comes back", "`CollectiveTimeout`, after the timeout, with its rank"
    ),
    "exits": Row("A process calls `sys.exit(3)`", "`RankLost`: it ended after sys.exit(3), at its line"),
    "caught": Row(
        "A process raises, catches it, and comes to its end",
        "`RankLost`: it came to its end, and the error that it caught",
    ),
    "skips": Row(
        "An error that is caught skips an iteration (`with sw.step(i)`)", "`CollectiveMismatch`, with both iterations"
    ),
    "late": Row(
        "A process is late by a multiple of what is usual", "a line in the log: who, how long, and where it is"
    ),
    "nonsense": Row("A process sends what cannot be read", "`RankLost`: it sent what cannot be read"),
    "mismatch": Row("A process makes another call", "`CollectiveMismatch`, in all; no data was moved"),
    "live": Row(
        "A process is late, and `shardwise run` writes to a terminal",
        "a line at the bottom: who, for how long, and where it is now",
    ),
    "interrupted": Row(
        "`shardwise run` gets SIGINT or SIGTERM", "Every rank: an interrupt, then SIGTERM, then SIGKILL"
    ),
    "unread": Row(
        "The same while nobody reads its output: a paused pager, Ctrl-S, a stuck collector",
        "The same; then how many bytes were not written",
    ),
    "full": Row("`shardwise run` cannot write its output: the disk is full", "It is said once; the job goes on"),
    "reader gone": Row("Who reads the output of `shardwise run` leaves", "It is said once; the job goes on"),
    "progress": Row("Ranks print progress bars, which have no end", "Each is shown as it comes"),
    "long line": Row("A rank prints 8 MiB without the end of a line", "Nothing: all of it is passed on"),
    "launcher killed": Row("`shardwise run` is killed", "Every rank is ended, and what it started"),
    "new group": Row(
        "Rank 0 is gone when others make a group with it for the first time",
        "`RankLost`, with its rank; groups without it work until then",
    ),
    "new group, stopped": Row(
        "Rank 0 is stopped when others make a group with it for the first time",
        "`CollectiveTimeout`, after the timeout, with its rank; groups without it work until then",
    ),
    "dies at first use": Row("A process is killed when a group is first used", "`RankLost`, with its rank"),
    "dies in init": Row("A process is killed, or leaves, in `init`, after all have met", "`RankLost`, with its rank"),
    "stops in init": Row(
        "A process is stopped in `init`, after all have met", "`CollectiveTimeout`, after the timeout, with its rank"
    ),
    "many groups": Row(
        "All 247 groups of 8 processes are used", "Nothing: no process has more files or threads than at its start"
    ),
    "starts again": Row(
        "`init` is called again and again, with the local engine in between",
        "Nothing: the first connection is used; other settings than at first are an `EngineError`",
    ),
    "steps": Row(
        "A process is in another step than the others, or in none", "`CollectiveMismatch`, with both iterations"
    ),
    "dies in the meeting": Row(
        "A process is killed while all meet, before `torch.distributed` connects them",
        "`EngineError`, with its rank, host and number, in all who have come",
    ),
    "absent": Row(
        "Processes do not come in the time to start",
        "`EngineError`: who did not come, who is here, and who was turned away",
    ),
    "twice": Row("Two processes have one rank", "`EngineError`, with the host and number of both, in all"),
    "other worlds": Row(
        "Processes differ in WORLD_SIZE, version, guard or mesh", "`EngineError`: what differs, and how, in all"
    ),
    "port": Row("MASTER_PORT is taken", "`EngineError` in rank 0; in the others when the time to start is over"),
    "strangers": Row(
        "A hundred strangers call a starting job, and say nothing, garbage, or have another secret",
        "Nothing: the job starts",
    ),
    "other secret": Row(
        "A process has another secret, or a certificate of another authority",
        "`EngineError`, when the time to start is over: who did not come, and why it was turned away",
    ),
    "forks": Row("A process forks while its threads hold locks", "Nothing: the child works, with locks of its own"),
    "pool": Row("Memory that nobody uses any more is wanted back", "Nothing: `clear_caches()` gives all of it back"),
}


def note(name: str, seconds: float, timeout: float = 0.0) -> None:
    """Note how long a situation took, to the last of the others knowing it; and the timeout that was waited for."""
    happens = ROWS[name].happens
    if path := os.environ.get("SHARDWISE_FAULT_SECONDS"):
        with Path(path).open("a") as file:
            file.write(json.dumps({"name": name, "happens": happens, "seconds": seconds, "timeout": timeout}) + "\n")
