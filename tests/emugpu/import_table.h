/* import_table.h: the entry of a function in the import table of a loaded library. */
#ifndef EMUGPU_IMPORT_TABLE_H
#define EMUGPU_IMPORT_TABLE_H

/* Puts `now` into each entry for `name` of the library to which the address `inside` belongs;
 * returns what stood there, or NULL: there is none. */
void *import_replace(const void *inside, const char *name, void *now);

#endif
