"""The elementwise functions as they are declared, by the number of operands: a new one is in all tables of tests.

What NumPy has under the same name is the oracle of each; those of the package's own are named in `OWN`.
"""

from inspect import signature

from shardwise.prim.arithmetic import elementwise
from shardwise.prim.primitive import Primitive

DECLARED = {
    name: row.function
    for name, row in vars(elementwise).items()
    if isinstance(row, Primitive) and row.function is not None
}
OWN = ("relu",)
COMPLEX = ("conj", "real", "imag")
BITS = [name for name in DECLARED if name.startswith("bitwise")]


def of(count: int) -> list[str]:
    """Return the names of the functions of so many operands, but for those of bits."""
    return [n for n, f in DECLARED.items() if f is not None and len(signature(f).parameters) == count and n not in BITS]


ONE, TWO = of(1), of(2)
PLAIN = [name for name in ONE if name not in (*OWN, *COMPLEX)]  # of real numbers, and NumPy has it
SHIFTS = [name for name in BITS if name.endswith("shift")]
BITS_OF_TWO = [name for name in BITS if name != "bitwise_invert"]
