"""Series of the logarithm and the sine: coefficients that are enough for float32 or, if wide, for float64."""

from math import factorial

ROOT_HALF = 0x3FE6A09E667F3BCD  # the bits of the square root of 1/2
LOGARITHM = {wide: tuple(4.0 / (2 * n + 1) for n in range(terms)) for wide, terms in ((False, 6), (True, 10))}
SINE = {
    wide: tuple((-1.0) ** n / factorial(2 * n + 1) for n in range(terms)) for wide, terms in ((False, 8), (True, 11))
}
