/* unrelated.c: a library that has nothing to do with the driver. */
extern int unrelated(void);

int unrelated(void)
{
	return 1;
}
