/*
 * PostgreSQL: the advisory low-water mark. Compare AppendRecord, SafeMark and
 * ReadAfter in internal/sqlstore/postgres.go. Each #ifdef is a negative
 * control, listed in README.md.
 */

#ifndef LAST
#define LAST 6	/* the clock's last tick */
#endif
#define MS 2	/* ticks in a millisecond, the precision of the key */

#include "rows.pml"

byte key[PRODUCERS];	/* of a transaction's locks: when it began, in whole milliseconds */
byte held[PRODUCERS];	/* how often it holds that key */

#ifdef ROUND_UP
#define KEY(at) ((at + MS - 1) / MS * MS)
#else
#define KEY(at) (at / MS * MS)
#endif

inline lock()
{
#ifdef NO_LOCK
	skip
#else
	held[p]++
#endif
}

/* A transaction that publishes, with savepoints, and ends either way. A
savepoint that is released is one that was never set, so it is set or not before
a row, and rolled back to or not after it. */
proctype Producer(byte p)
{
	byte row = FIRST(p);	/* the next to insert */
	byte savepoint, i;	/* 0: none; else the row after it, plus 1 */

	key[p] = KEY(clock);	/* BEGIN: now() */
	do
	:: row < FIRST(p) + PUBLISHES ->
		if
		:: savepoint == 0 -> savepoint = row + 1
		:: true
		fi;
		/* One statement: lock first, stamp after. */
#ifdef STAMP_BEFORE_LOCK
		stampRow(stamp[row]);
		lock();
#else
		lock();
		stampRow(stamp[row]);
#endif
		row++
	:: savepoint > 0 ->	/* ROLLBACK TO SAVEPOINT */
		atomic {
			takeBack(savepoint - 1, row);
			/* It releases exactly the locks that were taken since. */
#ifdef ROLLBACK_RELEASES_ALL
			held[p] = 0;
#elif !defined(NO_LOCK)
			held[p] = held[p] - (row - (savepoint - 1));
#endif
			savepoint = 0
		}
	:: row > FIRST(p) ->	/* COMMIT */
		/* First it becomes visible, then it releases its locks. */
#ifdef RELEASE_BEFORE_VISIBLE
		held[p] = 0;
#endif
		atomic { visible = visible | BIT(p); check() }
		break
	:: row > FIRST(p) ->	/* ROLLBACK */
		atomic { takeBack(FIRST(p), row) }
		break
	od;
	atomic { held[p] = 0; key[p] = 0; row = 0; savepoint = 0 }
}

active proctype Reader()
{
	byte mark, p, i;

	do
	:: true ->
		/* First statement: the time, then the lowest key in pg_locks.
		PostgreSQL looks at all locks at once; here others may come in
		between. A key above the time does not count, like any other that
		is not below the mark. */
		atomic {
			mark = clock;
#ifdef ONE_SNAPSHOT
			snapshot = visible
#endif
		}
		do
		:: p < PRODUCERS ->
			atomic {
				if
				:: held[p] > 0 && key[p] < mark -> mark = key[p]
				:: else
				fi;
				p++
			}
		:: else -> break
		od;
		/* Second statement, with a snapshot of its own, which is taken in
		one step, under ProcArrayLock. */
		atomic {
			p = 0;
			mark = READ_BELOW(mark);
#ifndef ONE_SNAPSHOT
			snapshot = visible;
#endif
			readRows();
			mark = 0
		}
	od
}

init
{
	atomic {
		run Producer(0);
#if PRODUCERS > 1
		run Producer(1)
#endif
	}
}
