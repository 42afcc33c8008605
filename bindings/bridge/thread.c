/* thread.c: keeps what the calling thread is doing on the bridge, and tells whether it is the main thread. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* syscall */
#endif
#include <pthread.h>
#include <unistd.h>
#ifndef __APPLE__
#include <sys/syscall.h>
#endif

#include "thread.h"

_Thread_local mf__frame *mf__top;

static _Thread_local int known; /* whether it is the main thread; 1: no, 2: yes */

void mf__thread_forked(void) {
  known = 0;
}

int mf__on_main_thread(void) {
  if (known != 0) return known == 2;
#ifdef __APPLE__
  int is = pthread_main_np();
#else
  int is = syscall(SYS_gettid) == getpid();
#endif
  known = 1 + is;
  return is;
}
