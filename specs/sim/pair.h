/* pair.h: two processes of one simulated machine, which tell each other things.
 *
 * The second one is this program again, in a role of its own; it begins without a driver, as a process that is spawned
 * does. What includes this has included the spec.h of a simulator. It must not know what either does. */
#ifndef SIM_PAIR_H
#define SIM_PAIR_H

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"

typedef struct pair {
  pid_t child;
  int fd;
} pair;

typedef struct outcome { /* of the second process */
  uint64_t findings, races, left;
  char text[3000];
} outcome;

static inline void tell(int fd, const void *bytes, size_t n) {
  if (write(fd, bytes, n) != (ssize_t)n) abort();
}

static inline void hear(int fd, void *bytes, size_t n) {
  for (size_t had = 0; had < n;) {
    const ssize_t m = read(fd, (char *)bytes + had, n - had);
    if (m <= 0) abort();
    had += (size_t)m;
  }
}

static inline void tell_done(int fd) {
  tell(fd, "", 1);
}

static inline void hear_done(int fd) {
  char byte;
  hear(fd, &byte, 1);
}

static inline void pass_descriptor(int to, int fd) {
  char room[CMSG_SPACE(sizeof fd)] = {0}, byte = 0;
  struct iovec part = {&byte, 1};
  struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  struct cmsghdr *c = CMSG_FIRSTHDR(&m);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(c), &fd, sizeof fd);
  if (sendmsg(to, &m, 0) != 1) abort();
}

static inline int take_descriptor(int from) {
  int fd = -1;
  char room[CMSG_SPACE(sizeof fd)], byte;
  struct iovec part = {&byte, 1};
  struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  if (recvmsg(from, &m, 0) != 1) abort();
  memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
  return fd;
}

static inline pair second_process(const char *role) {
  int ends[2];
  char number[16];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) abort();
  snprintf(number, sizeof number, "%d", ends[1]);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    execl("/proc/self/exe", "second", role, number, (char *)NULL);
    _exit(127);
  }
  close(ends[1]);
  return (pair){child, ends[0]};
}

/* Waits for the end of the second process, which says what it found. */
static inline outcome finish(pair p) {
  outcome o;
  int status;
  hear(p.fd, &o, sizeof o);
  close(p.fd);
  assert_int_equal(waitpid(p.child, &status, 0), p.child);
  assert_int_equal(status, 0);
  return o;
}

static inline void finish_well(pair p) {
  const outcome o = finish(p);
  if (o.findings != 0 || o.left != 0) fail_msg("the second process: %llu left\n%s", (unsigned long long)o.left, o.text);
}

static inline int second(void (*role)(int), int fd) {
  outcome o = {0};
  begin(NULL);
  role(fd);
  o.findings = sim_findings(SIM_ANY);
  o.races = sim_findings(SIM_RACE);
  o.left = (uint64_t)(sim_left("memory") + sim_left("streams") + sim_left("events") + sim_left("physical"));
  for (size_t i = 0; sim_finding(i) != NULL; i++)
    snprintf(o.text + strlen(o.text), sizeof o.text - strlen(o.text), "%s\n", sim_finding(i));
  tell(fd, &o, sizeof o);
  _exit(0);
}

#endif
