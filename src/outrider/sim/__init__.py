"""A web, a disk and a clock in a box: the world as tests and the demo need it."""
