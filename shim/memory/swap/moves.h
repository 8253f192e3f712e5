/* moves.h: which segments of a lane are moved next, and what follows from the end of a move.
 *
 * These functions take swap_lock, so that those who move segments need not. The client thread calls
 * them, or a thread whose context ends, without swap_lock.
 */
#ifndef GPU_LEASE_SWAP_MOVES_H
#define GPU_LEASE_SWAP_MOVES_H

#include "memory/swap/lane.h"

#define MOVES_AT_ONCE 64 /* the most segments whose moves begin in one step */

/* -- evicting ----------------------------------------------------------------------- */

/* From the oldest segment on. */
void moves_restart_out(struct lane *lane);
/* Calls `visit` for the segments that may be evicted next, in their order and with swap_lock held,
 * until it returns false. */
void moves_visit_next(struct lane *lane, bool (*visit)(struct segment *segment, void *argument),
                      void *argument);
/* Begins to move the next segment. NULL: there is none. */
struct segment *moves_begin_out(struct lane *lane);
/* Ends that move: nothing has been begun, and the segment is the next one again. */
void moves_put_back(struct segment *segment);
/* Bytes of the segments without a copy among the oldest ones of `bytes` together, without shared
 * ones, which stay. */
uint64_t moves_copies_needed(struct lane *lane, uint64_t bytes);
/* Gives up copies of resident segments, of all lanes, that are not known to be current. known_ones:
 * those whose fingerprint is known, which may turn out to be current; else the others. */
void moves_drop_copies(bool known_ones);

/* -- what stays since it could not be copied ----------------------------------------- */

/* Bytes of it; lacking: only those without host memory. */
uint64_t moves_staying(struct lane *lane, bool lacking);
/* It may leave again, as far as there is so much host memory. */
void moves_let_leave(struct lane *lane, uint64_t available);
/* All that is resident stays. */
void moves_keep_all(struct lane *lane);

/* -- restoring ------------------------------------------------------------------------ */

/* From the newest segment on. */
void moves_restart_in(struct lane *lane);
/* Makes physical memory for some missing segments, at most for so many bytes, and begins to move
 * them. Returns how many; *result says why not more. lane->bytes_left is 0 once nothing more is to
 * be begun. */
unsigned int moves_begin_in(struct lane *lane, uint64_t most, struct segment *some[MOVES_AT_ONCE],
                            CUresult *result);

/* -- the end of a segment's move --------------------------------------------------------- */

/* Nothing has changed. */
void move_end(struct segment *segment);
/* It is evicted, and unmapped here. Its state is AWAY or ABSENT from now on. */
void move_end_out(struct segment *segment, enum segment_state state);
/* It is restored. */
void move_end_in(struct segment *segment);
/* A carrier has taken it away: its bytes are `copy` from now on. It is unmapped here. */
void move_end_away(struct segment *segment, struct copy *copy);
/* It is back from a carrier, or stays though one has taken it: it has no copy. */
void move_end_carried(struct segment *segment, bool back);
/* It is copied and need not be evicted any more: it is resident, and its copy current. */
void move_end_cancelled(struct segment *segment);
/* It cannot be evicted, and becomes fixed; unhosted: for want of host memory. The user is told why,
 * once. */
void move_end_impossible(struct segment *segment, bool unhosted, const char *why);
/* Tells the user that memory cannot be evicted, and why; once. */
void moves_complain(const struct lane *lane, const char *why);

#endif
