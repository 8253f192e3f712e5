/* connection_words.c: try once to connect to GPU_LEASE_SOCKET, and print what the user would
 * be told if that did not help. */
#include "base/debug.h"
#include "lease/connection.h"

#include <stdarg.h>
#include <stdio.h>

void complain(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
}

int main(void)
{
	connection_try();
	connection_complain();
	return 0;
}
