/* hold.h: whether all swapped memory is on its devices and stays there.
 *
 * It holds from the end of a grant's restore until the gate is shut and all work has
 * finished. Meanwhile every segment is on its device and new ones get memory at once.
 */
#ifndef GPU_LEASE_HOLD_H
#define GPU_LEASE_HOLD_H

#include <stdbool.h>

bool swap_holds(void);
bool swap_hold(bool force); /* hold, if all is there; force: in any case */
bool swap_let_go(void);     /* memory may leave from now on; false: there is none */

#endif
