/* registry.h: what is known of compiled kernels.
 *
 * It must not know how they are launched. */
#ifndef SIM_CUDART_REGISTRY_H
#define SIM_CUDART_REGISTRY_H

/* The name that the compiler gave to the kernel of this host function, or NULL: there is none. */
const char *kernel_name(const void *host);

/* What its library registered itself with, or NULL. */
const void *kernel_image(const void *host);

#endif
