"""Draw the pictures of the documentation: `python tools/draw.py` writes docs/pictures/*.svg."""

from __future__ import annotations

from pathlib import Path

from shardwise import Cut, DeviceMesh, Layout, P, Picture, Plan, picture, plan_reshard

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
MESH = DeviceMesh((2, 4), ("dp", "tp"))
CUBE = DeviceMesh((2, 2, 2), ("pp", "dp", "tp"))


def _layout(*dims: str | Cut | None, partial: tuple[str, ...] = ()) -> Layout:
    return Layout(MESH, dims, partial)


def _plan(src: P, dst: P, shape: tuple[int, ...]) -> Plan:
    return plan_reshard(src.to_layout(len(shape), MESH), dst.to_layout(len(shape), MESH), shape, "float32")


def pictures() -> dict[str, Picture]:
    """Return every picture of the documentation by the name of its file."""
    return {
        "mesh": picture(MESH),
        "mesh-cube": picture(CUBE),
        "sharded": picture(_layout("dp", "tp"), (1024, 4096)),
        "replicated": picture(_layout(None, "tp"), (1024, 4096)),
        "partial": picture(_layout("dp", None, partial=("tp",)), (1024, 4096)),
        "uneven": picture(_layout(Cut("tp", offsets=(0, 1, 5, 5, 10)), "dp"), (10, 7)),
        "halo": picture(_layout(Cut("dp", halo=(1, 1)), Cut("tp", halo=(1, 1), edge="pad")), (8, 16)),
        "unfolded": picture(Layout(CUBE, ["pp", "dp", "tp"]), (8, 128, 64)),
        "plan-exchange": picture(_plan(P("dp", "tp"), P("tp", "dp"), (1024, 4096))),
        "plan-all-gather": picture(_plan(P("tp", None), P(), (1024, 512))),
        "plan-reduce-scatter": picture(_plan(P("dp", unreduced=["tp"]), P("dp", "tp"), (1024, 512))),
    }


def main() -> None:
    """Write the pictures, and remove those that are no longer made."""
    FOLDER.mkdir(exist_ok=True)
    found = pictures()
    for old in FOLDER.glob("*.svg"):
        if old.stem not in found:
            old.unlink()
    for name, drawing in found.items():
        drawing.save(FOLDER / f"{name}.svg")


if __name__ == "__main__":
    main()
