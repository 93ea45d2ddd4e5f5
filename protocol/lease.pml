/*
 * The lease protocol of Unstuck, for the Spin model checker. README.md says how to run it and what it leaves out.
 *
 * One job; two worker processes with three slots between them; two reapers; an operator; a clock. Two of the
 * slots share an owner's name, because a name is not a fence and only a second slot of the same name shows it.
 * Each `atomic` is one step of the store. Between two of them any time may pass: a process that is not
 * scheduled is a paused one, so SIGSTOP, a long collection or a slow network needs no code of its own.
 */
#ifndef MUT
#define MUT 0           /* 1 to 17: put in one known mistake, which the check has to find */
#endif
#ifndef OWN_BUDGET
#define OWN_BUDGET 0    /* 0: max_crashes unset, a crash is an attempt. 1: set, crashes have their own budget */
#endif
#ifndef OUTSIDE
#define OUTSIDE 0       /* 1: handlers also write to a resource outside; on its own, as it is five times the states */
#endif
#ifndef LIVE
#define LIVE 0          /* 1: check that the job gets unstuck, instead of what must always hold */
#endif

/* The smallest numbers with which every mistake has room to show. */
#ifndef GRANTS
#define GRANTS 5        /* nothing is leased past this fence: releases are free, so only this ends a run */
#endif
#ifndef SLIPS
#define SLIPS 1         /* how often a reaper dies, or is slower than its own lease */
#endif
#define MAX_ATTEMPTS 2
#define MAX_CRASHES 2
#define LEASE 2         /* ticks */
#define REAPER_LEASE 1
#define REAPER 3        /* owners 1 and 2 are workers, 3 and 4 reapers */

mtype = { PENDING, PROCESSING, COMPLETED, FAILED, RETRIED, RELEASED };

/* The row. Of time it has only what is left of the lease; which instant it is makes no difference. */
mtype status = PENDING;
byte fence, owner, left, attempts, crashes;
byte settled;           /* settled_fence, and the outcome's word with it */
mtype word;

/* What an onlooker knows. No step of the store depends on it, except that `gone` lets a supervisor act. */
mtype journal = PENDING;  /* the state that the events add up to */
byte granted;             /* the largest fence ever handed out */
byte ended;               /* the lease that ended last; how; and whether it was its holder who ended it */
mtype how_ended;
bool by_holder;
byte spent;               /* leases that ended otherwise than by a release, since the enqueue or requeue */
byte completions;
byte seen;                /* the largest fence that wrote outside */
bool cancelled;           /* a cancel was acknowledged, and no requeue since */
bool gone;                /* the holder died and its supervisor saw it: reclaim(of=...) need not wait */
bool beaten;              /* LIVE: a handler that beats for ever may hold its job for ever, so here it beats once */
byte slips;

/* The guards. A mistake widens one of them (8 narrows it). Note that a worker's write never asks the time. */
#define HOLDS (status == PROCESSING && fence == token)
#define MINE (HOLDS || MUT == 1 || (status == PROCESSING && (MUT == 2 || (MUT == 3 && owner == me))))
#define BEATS (HOLDS || (MUT == 4 && status == PROCESSING))
#define LAPSED (status == PROCESSING && (left == 0 || gone))
#define SKEWED (MUT == 9 && status == PROCESSING && left == 1)
#define RECLAIMABLE ((LAPSED || SKEWED) && !(MUT == 8 && attempts >= MAX_ATTEMPTS))

/* fate(): errors and crashes draw on one budget, or on two. A crash is judged as if it were counted already. */
#if OWN_BUDGET
#define ERRORS_SPENT (attempts - crashes >= MAX_ATTEMPTS)
#define CRASHES_SPENT (crashes + counts >= MAX_CRASHES)
#define BUDGET (attempts - crashes <= MAX_ATTEMPTS && crashes <= MAX_CRASHES)
#else
#define ERRORS_SPENT (attempts >= MAX_ATTEMPTS)
#define CRASHES_SPENT (attempts >= MAX_ATTEMPTS)
#define BUDGET (attempts <= MAX_ATTEMPTS)
#endif

/* Every way to get hold of the job: lease, reclaim, cancel. */
inline grant(next, who, ticks) {
    fence = next; owner = who; left = ticks; gone = false; beaten = false;
    assert(fence > granted);  /* two holders never show the same fence */
    granted = fence;
    printf("fence %d\n", fence)
}

/* Every way to let go of it: state, event, counters and the memory of it are one step. */
inline end_lease(how, holder) {
    owner = 0; left = 0; gone = false;
    ended = fence; how_ended = how; by_holder = holder;
    if
    :: MUT == 13
    :: else -> settled = fence; word = how
    fi;
    if
    :: how == RELEASED -> attempts = attempts - (MUT != 12)  /* gives back the attempt, never the fence */
    :: else -> spent++
    fi;
    if
    :: how == COMPLETED || how == FAILED -> status = how
    :: else -> status = PENDING
    fi
}

/*
 * settle(): applied, repeated or lost. The answer is held against the truth: nobody is told "repeated" for what
 * somebody else did; nobody is told "lost" for what it did itself, as long as no later lease has ended.
 */
#define I_DID(how) (ended == token && how_ended == how && by_holder)
inline settle(how, crash) {
    if
    :: MINE ->
        printf("settle %e with %d: applied to %d\n", how, token, fence);
        assert(HOLDS);                              /* a write applies only for the current fence */
        assert(fence != ended);                     /* a lease ends once */
        assert(!(how == COMPLETED && cancelled));   /* a cancel that was acknowledged stays */
        completions = completions + (how == COMPLETED);
        crashes = crashes + (crash || (MUT == 17 && left == 0));
        end_lease(how, fence == token);
        if
        :: MUT == 16 && me >= REAPER  /* the event comes later, if the reaper lives */
        :: else -> journal = status
        fi
    :: else ->
        if
        :: settled == token && word == how -> printf("settle %e with %d: repeated\n", how, token); assert(I_DID(how))
        :: else -> printf("settle %e with %d: lost\n", how, token); assert(!I_DID(how))
        fi
    fi
}

inline write_outside() {
    printf("writes outside with %d\n", token);
    assert(token >= seen);  /* never a smaller fence after a larger one */
    seen = token
}

/* Who has a token may speak at any time. LIVE: only while it counts, or lost answers are asked for for ever. */
#define SPEAKS (token > 0 && (!LIVE || HOLDS))

/*
 * A slot is idle, or it has a token, and with a token it may do anything in any order, also after it settled.
 * That is the resend of a settle whose answer was lost; a shutdown that releases what is settled already; a
 * lease found by two beats and given back, whose reply then comes after all; a beat that was under way; a
 * thread that nobody could stop.
 */
proctype Slot(byte me) {
    byte token, read;
end_idle:
#if MUT == 10
    atomic { status == PENDING && fence < GRANTS -> read = fence };
    atomic {
#else
    atomic { status == PENDING && fence < GRANTS -> read = fence;
#endif
        printf("worker %d leases\n", me); grant(read + 1, me, LEASE); read = 0;
        status = PROCESSING; journal = PROCESSING; attempts++; token = fence };
    do
    :: atomic { SPEAKS -> settle(COMPLETED, 0) }
    :: atomic { SPEAKS -> settle(RELEASED, 0) }
    :: atomic { SPEAKS -> settle(FAILED, 0) }  /* a permanent error, or the last attempt */
    :: atomic { SPEAKS && !(HOLDS && ERRORS_SPENT) -> settle(RETRIED, 0) }
    :: atomic { BEATS && !beaten -> beaten = LIVE;  /* a late beat counts too, unless the lease was taken over */
            printf("beat with %d\n", token); assert(fence == token); left = LEASE }
#if MUT == 5
    :: HOLDS && left > 1 -> atomic { write_outside() }  /* sure of its lease, and then, later, it writes */
#else
    :: atomic { OUTSIDE && token > seen -> write_outside() }  /* the resource itself compares the fences */
#endif
    :: atomic { HOLDS && !gone -> gone = true;  /* SIGKILL, and it is seen; what it had sent may still arrive */
            printf("killed with %d\n", token) }
    :: atomic { token = 0; goto end_idle }  /* done; or told "lost"; or the lease's reply, or the host, is gone */
    od
}

/* Takes a lease over, then ends it like any worker. It may die in between, or oversleep its own lease. */
proctype Reaper(byte me) {
    byte token;
    bit counts;
end_watch:
#if MUT == 6
    atomic { RECLAIMABLE };
    atomic {
#else
    atomic { RECLAIMABLE ->
#endif
        printf("reaper %d reclaims, %d ticks left\n", me, left);
        assert(LAPSED);  /* never a lease that still runs */
        counts = (MUT != 11 && !(MUT == 15 && owner >= REAPER));
        crashes = crashes + (MUT == 11);
        grant(fence + 1, me, REAPER_LEASE); token = fence };
    do
    :: atomic { SPEAKS && !(HOLDS && !(CRASHES_SPENT && MUT != 7)) -> settle(FAILED, counts) }
    :: atomic { SPEAKS && !(HOLDS && CRASHES_SPENT && MUT != 7) -> settle(RETRIED, counts) }
    :: atomic { HOLDS && slips < SLIPS -> slips++; gone = true; printf("reaper %d dies\n", me);
            token = 0; counts = 0; goto end_watch }
    :: atomic { !HOLDS ->
            if
            :: MUT == 16 && ended == token -> journal = status
            :: else
            fi;
            token = 0; counts = 0; goto end_watch }
    od
}

/* Cancels once and requeues once, in any order, or does not. */
proctype Operator() {
    bit cancels, requeues;
end_watch:
    do
    :: atomic { !cancels && status == PENDING -> cancels = 1;  /* no lease, no fence, nothing to remember */
            printf("cancel, pending\n");
            status = FAILED; journal = FAILED; cancelled = true }
    :: atomic { !cancels && status == PROCESSING -> cancels = 1;
            if
            :: MUT == 14
            :: else -> grant(fence + 1, 0, 0)
            fi;
            printf("cancel, processing\n");
            end_lease(FAILED, false); journal = FAILED; cancelled = true }
    :: atomic { !requeues && status == FAILED -> requeues = 1;
            status = PENDING; journal = PENDING; cancelled = false;
            printf("requeue\n"); attempts = 0; crashes = 0; spent = 0 }  /* the fence goes on */
    :: atomic { !cancels || !requeues -> cancels = 1; requeues = 1 }
    od
}

/* Two reapers slower than their own leases would hand the job to and fro for ever, so that is bounded. */
proctype Clock() {
end_tick:
    do
    :: atomic { left > 1 || (left == 1 && (owner < REAPER || gone)) -> left--; printf("tick\n") }
    :: atomic { left == 1 && owner >= REAPER && !gone && slips < SLIPS -> slips++; left = 0; printf("tick\n") }
    :: LIVE && left == 0 -> skip  /* time goes on, so weak fairness has an endless run to speak about */
    od
}

#define ONE_COMPLETION (completions == (status == COMPLETED))
#define CRASHES_ARE_ATTEMPTS (crashes <= attempts)
#define LEDGER (attempts == spent + (status == PROCESSING))
#define JOURNAL (journal == status)

#if LIVE
ltl unstuck { <>[] (status != PROCESSING) }
#else
proctype Monitor() {
end_watch:
    if
    :: atomic { !(ONE_COMPLETION && CRASHES_ARE_ATTEMPTS && BUDGET && LEDGER && JOURNAL) ->
            assert(ONE_COMPLETION); assert(CRASHES_ARE_ATTEMPTS); assert(BUDGET); assert(LEDGER); assert(JOURNAL) }
    :: timeout -> assert(status != PROCESSING)  /* nothing can move any more, and the job is not stuck */
    fi
}
#endif

init {
    atomic {
        run Slot(1); run Slot(2);
#if !LIVE
        run Slot(1); run Monitor();
#endif
        run Reaper(REAPER); run Reaper(REAPER + 1);
        run Operator(); run Clock()
    }
}
