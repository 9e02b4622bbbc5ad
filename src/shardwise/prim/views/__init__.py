"""Views: primitives that say which elements stand where, and compute nothing."""
