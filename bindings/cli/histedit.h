/* histedit.h: what edit.c uses of libedit's interface, written down so that its header is not needed to build.
 *
 * specs/cli compares the numbers and the structs with libedit's own header where that is installed. */
#ifndef MOONFERRY_HISTEDIT_H
#define MOONFERRY_HISTEDIT_H

typedef struct editline EditLine;
typedef struct history History;

typedef struct lineinfo {
  const char *buffer, *cursor, *lastchar;
} LineInfo;

typedef struct HistEvent {
  int num;
  const char *str;
} HistEvent;

enum { CC_REFRESH = 4, CC_ERROR = 6, CC_REDISPLAY = 8, CC_REFRESH_BEEP = 9 };
enum { EL_PROMPT = 0, EL_EDITOR = 2, EL_SIGNAL = 3, EL_BIND = 4, EL_ADDFN = 9, EL_HIST = 10, EL_GETCFN = 13 };
enum { EL_PREP_TERM = 16, EL_REFRESH = 20 };
enum { H_SETSIZE = 1, H_ENTER = 10, H_SETUNIQUE = 20 };

#endif
