/* start.h: CPython's life inside a process that Lua hosts; start.c says more. */
#ifndef MF__START_H
#define MF__START_H

#include <stddef.h>

/* Makes sure that an interpreter runs; returns 1 if it was started here and now, 0 if it ran already. ${program}: path
 * of the interpreter that it stands for, which is what leads it to a virtual environment; NULL lets CPython decide.
 * On failure returns -1 and writes the reason to ${why}. Threads: any. */
int mf__python_start(const char *program, char *why, size_t cap);

/* Whether Lua brought Python in, so that the process's end is Python's. */
int mf__python_is_guest(void);

/* finish.c: of a Python that was just started: its end comes with the process's, or by mf_guest_finish. The second
 * makes Python's farewell at exit come before every destructor that is registered now. */
void mf__python_watch_for_the_end(void);
void mf__python_arm_farewell(void);

/* The same after an import, if that loaded anything; and mf__interrupt_arm. The GIL must be held. */
void mf__python_imported(void);

/* interrupt.c: makes Ctrl-C reach Python while that runs. Again if the host has put its own handler back since. The
 * GIL must be held, on the thread that started Python. */
void mf__interrupt_arm(void);

/* configure.c: starts CPython as ${program} says. Returns 1, or -1 with the reason in ${why}; 0 where this libpython is
 * older than that way. */
int mf__python_configured(const char *program, char *why, size_t cap);

/* Whether Python is to be in UTF-8 mode: as PYTHONUTF8 says, else where the host's LC_CTYPE is C. */
int mf__python_utf8_mode(void);

/* Keeps the library that ${address} is in for ever; ${flags}: 0, or RTLD_GLOBAL to promote it. Extension
 * modules look libpython's symbols up in the global scope. */
void mf__python_pin(void *address, int flags);

#endif
