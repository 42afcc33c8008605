/* helping.h: a second thread that acts while an operation runs, and what it may do. operations.h comes first. It must
 * not know when it is asked to act. */
#ifndef MOONFERRY_SPEC_HELPING_H
#define MOONFERRY_SPEC_HELPING_H

#include <pthread.h>

#include "../c/moment.h"

/* It acts, and may have a second part when the operation has returned. */
typedef struct helper {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  void (*act)(struct helper *h);
  mf_stream stream;
  int64_t captured;
  bool acted, returned;
  char wrong[300];
} helper;

static void say_wrong(helper *h, const char *what, const mf_error *e) {
  snprintf(h->wrong, sizeof h->wrong, "%s: %s", what, e == NULL ? "" : e->message);
}

static void wait_for_return(helper *h) {
  pthread_mutex_lock(&h->lock);
  h->acted = true;
  pthread_cond_broadcast(&h->changed);
  while (!h->returned) pthread_cond_wait(&h->changed, &h->lock);
  pthread_mutex_unlock(&h->lock);
}

static void *help(void *arg) {
  helper *h = arg;
  h->act(h);
  pthread_mutex_lock(&h->lock);
  h->acted = true;
  pthread_cond_broadcast(&h->changed);
  pthread_mutex_unlock(&h->lock);
  return NULL;
}

/* What a lock of the runtime keeps from acting now acts as soon as the operation lets it. */
static void let_act(helper *h) {
  if (pthread_create(&h->thread, NULL, help, h) != 0) abort();
  moment_wait(&h->changed, &h->lock, &h->acted);
}

/* The operation has returned; ${acts}: the helper was asked to act. */
static void helper_end(helper *h, bool acts) {
  pthread_mutex_lock(&h->lock);
  h->returned = true;
  pthread_cond_broadcast(&h->changed);
  pthread_mutex_unlock(&h->lock);
  if (acts) pthread_join(h->thread, NULL);
  pthread_cond_destroy(&h->changed);
}

/* What it does */

static void trims_everything(helper *h) {
  mf_error e;
  if (mf_pools_trim(0, &e) != MF_OK) say_wrong(h, "trim", &e);
}

static void uses_the_same_tensor(helper *h) {
  const mf_request request = {.stream = h->stream};
  DLManagedTensorVersioned *m;
  mf_error e;
  if (mf_tensor_export_to(small_gpu, &request, &m, &e) != MF_OK) say_wrong(h, "export", &e);
  else m->deleter(m);
}

/* A launch uses nothing that the runtime has given back since. */
static void launch_trimmed(void *graph, int64_t stream) {
  (void)mf_pools_trim(0, NULL);
  other_launch(0, graph, stream);
  other_sync(0, stream);
}

/* In the strictest mode, until the operation has returned. */
static void captures_stream(helper *h, int64_t stream) {
  other_capture(0, stream);
  wait_for_return(h);
  if (other_capture_is_whole(0, stream)) {
    void *graph = other_capture_end(0, stream);
    launch_trimmed(graph, stream);
    other_graph_end(0, graph);
    return;
  }
  say_wrong(h, "the capture is broken", NULL);
  other_capture_give_up(0, stream);
}

#endif
