/* passing.h: a tensor of ours goes out to another library and comes back in a struct of that library's, whose memory it
 * then is for all that a struct says. device.h comes first. */
#ifndef MOONFERRY_SPEC_PASSING_H
#define MOONFERRY_SPEC_PASSING_H

/* Another library's tensor over ours. */
typedef struct passing {
  DLManagedTensorVersioned managed; /* first */
  DLManagedTensorVersioned *inner;
  int deleted;
} passing;

static inline void end_passing(DLManagedTensorVersioned *self) {
  passing *p = (passing *)self;
  p->inner->deleter(p->inner);
  p->deleted++;
}

static inline mf_tensor *back(passing *p, mf_tensor *t, mf_stream stream) {
  const mf_request request = {.stream = stream};
  mf_tensor *u;
  OK(mf_tensor_export_to(t, &request, &p->inner, &err));
  p->managed = (DLManagedTensorVersioned){.version = {1, 0}, .deleter = end_passing, .dl_tensor = p->inner->dl_tensor};
  p->deleted = 0;
  use_stream(0, stream);
  OK(mf_tensor_import(&p->managed, &u, &err));
  use_stream(0, MF_STREAM_DEFAULT);
  return u;
}

static inline void fill_on(mf_tensor *t, mf_stream stream, uint64_t value) {
  use_stream(0, stream);
  fill(t, value);
  use_stream(0, MF_STREAM_DEFAULT);
}

#endif
