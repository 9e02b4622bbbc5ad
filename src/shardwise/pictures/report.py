"""Reports: a plan with its mesh, its layouts, its alternatives and what it costs, for a terminal and as one page."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from shardwise.layout.mesh import DeviceMesh
from shardwise.pictures.drawing import Picture, picture
from shardwise.pictures.page import heading, prose, scroll, table
from shardwise.pictures.plan import (
    ALTERNATIVES,
    STEPS,
    alternative_row,
    explanation_table,
    plan_title,
    plan_total,
    size_text,
    step_row,
    time_text,
)
from shardwise.plan.explain import Explanation
from shardwise.plan.plan import Plan


def report(plan: Plan) -> Picture:
    """Return all there is to say about a plan: as text, as a page, and (its drawing alone) as SVG.

    >>> from shardwise import DeviceMesh, P, mesh_context, plan_reshard
    >>> with mesh_context(DeviceMesh((2,), ("x",))):
    ...     plan = plan_reshard(P("x"), P(), (4,), "int8")
    >>> print(report(plan))
    mesh x=2: 2 devices
    x=0   x=1
     0  ─  1
    links: x 10 us, 25 GB/s
    <BLANKLINE>
    [x] -> [-]  int8[4] on x=2
    step        over  to   receives  sends  staging  chunks   time
    all_gather  x     [-]       2 B    2 B      4 B       1  10 us
    receives at most 2 B a device (the least possible), time 10 us
    ...
    way                  steps                           receives at most  all devices  memory   time
    this plan            all_gather over x                            2 B          4 B    10 B  10 us
    ...
    """
    drawing, explanation = picture(plan), plan.explain()
    return Picture(
        drawing.title,
        lambda: drawing.svg,
        lambda width: _layers(plan, explanation, width),
        lambda: _parts(plan, explanation, drawing),
    )


def _layers(plan: Plan, explanation: Explanation, width: int | None) -> RenderableType:
    out: list[RenderableType] = []
    for mesh in _meshes(plan):
        out += [picture(mesh).show(width), Text(f"links: {_links(plan, mesh)}"), Text()]
    out += [picture(plan).show(width), Text(), Text("alternatives", style="bold"), explanation_table(explanation)]
    return Group(*out)


def _parts(plan: Plan, explanation: Explanation, drawing: Picture) -> list[str]:
    total = plan_total(plan)
    out = [heading(plan_title(plan), 1), prose(f"{total[0].upper()}{total[1:]}.")]
    for mesh in _meshes(plan):
        out += [heading("Mesh"), scroll(picture(mesh).svg), prose(f"Links: {_links(plan, mesh)}.")]
    out += [heading("Plan"), scroll(drawing.svg), heading("Cost")]
    out.append(table(STEPS, [step_row(step) for step in plan.steps], left=3))
    before, after = (size_text(layout.max_local_bytes(plan.shape, plan.dtype)) for layout in (plan.src, plan.dst))
    out.append(
        prose(
            f"A device holds at most {before} before and {after} after, and stages up to "
            f"{size_text(plan.staging_bytes)} between."
        )
    )
    out += [heading("Alternatives"), _alternatives(explanation), prose(explanation.why)]
    return out


def _alternatives(explanation: Explanation) -> str:
    rows = map(alternative_row, (explanation.chosen, *explanation.alternatives))
    return table(ALTERNATIVES, list(rows), left=2, chosen=0)


def _meshes(plan: Plan) -> list[DeviceMesh]:
    return list(dict.fromkeys((plan.src.mesh, plan.dst.mesh)))


def _links(plan: Plan, mesh: DeviceMesh) -> str:
    texts: list[str] = []
    for name in mesh.axis_names:
        for size, link in plan.links.on(mesh, [mesh.axis(name)]):
            further = f" + {time_text(link.overhead)} a further message" if link.overhead else ""
            speed = f"{time_text(link.latency)}{further}, {link.bandwidth / 1e9:.3g} GB/s"
            texts.append(f"{name} {speed}" if size == mesh.axis_size(name) else f"{name} ({size} positions) {speed}")
    return "; ".join(texts) or "none"
