/* host.h: what the files share by which the program hosts Lua.
 *
 * One Lua state for the life of the program, on one thread. It must not know what Lua code does. */
#ifndef MOONFERRY_HOST_H
#define MOONFERRY_HOST_H

#include <lauxlib.h>
#include <lua.h>
#include <luajit.h>
#include <lualib.h>
#include <moonferry_lua.h>
#include <stdbool.h>

/* state.c */
lua_State *host_open(bool environment); /* libraries open, Moonferry's Lua files found; NULL: no memory */
int host_call(lua_State *L, int arguments, int results); /* as lua_pcall, with a traceback, and Ctrl-C stops it */
int host_report(lua_State *L, int status); /* prints and pops the error, if status is one; returns status */
void host_prefix(const char *prefix); /* of what host_report prints, "moonferry: " until then */
int host_require(lua_State *L, const char *name); /* leaves the module, or nothing after it said why not */

/* interrupt.c */
void host_interruptible(lua_State *L, bool forgiving); /* forgiving: Ctrl-C alone never ends the program */
bool host_uninterruptible(void); /* whether Ctrl-C came meanwhile */

/* repl.c */
int host_repl(lua_State *L, bool compiled); /* compiled: what is typed may be, so that Ctrl-C may not stop it */

/* edit.c */
typedef struct edit_result {
  char *line;       /* without its newline, to be freed; NULL: none */
  size_t size;      /* of the line, which may have NULs in it */
  bool interrupted; /* by Ctrl-C; else no line is the end of the input */
} edit_result;

/* Says what a Tab stands for: text to insert, or possible ends to show. Each is to be freed, or NULL. Or that Ctrl-C
 * has ended the search. */
typedef struct edit_completion {
  char *insert, *listing;
  bool stopped;
} edit_completion;

typedef edit_completion edit_completer(void *data, const char *before, size_t size);

/* A completer calls these around code of the user's, a table's __index or a property of Python's: a signal that comes
 * meanwhile does what it does where no line is read. One that comes as it begins does so too. */
void edit_lend_signals(void);
void edit_take_signals(void);

void edit_open(edit_completer *complete, void *data); /* without an editor, lines are read as they come */
bool edit_able(void);
edit_result edit_line(const char *prompt);
void edit_remember(const char *line);
void edit_close(void);
void edit_give_back(void); /* the terminal's modes, for what ends the program within a line; a signal's handler may */

#endif
