/* empty.c: a library with nothing in it.
 *
 * Stands in for the libraries that CuPy for ROCm is linked with and that nothing here calls; a call to one ends in
 * "symbol not found". It must stay empty, so that nothing pretends. */
typedef int nothing;
