"""The pictures of the documentation are those that the library draws today."""

import pytest

from tools.draw import FOLDER, pictures

DRAWN = pictures()


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_current(name: str):
    assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == DRAWN[name].svg + "\n", "run tools/draw.py"


def test_there_are_no_others():
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(DRAWN)
