/* connection_words.c FILES: try once to connect to GPU_LEASE_SOCKET with no more than FILES open
 * files, and print what the user would be told if that did not help. */
#include "base/debug.h"
#include "lease/connection.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

void complain(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
}

int main(int n, char **arguments)
{
	rlim_t files = n == 2 ? strtoul(arguments[1], NULL, 10) : 0;

	if (!files || setrlimit(RLIMIT_NOFILE, &(struct rlimit){files, files}))
		return 1;
	connection_try();
	connection_complain();
	return 0;
}
