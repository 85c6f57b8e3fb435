/*
 * Inside pace/: the constants, first of gangs and turns, then of one device. A comment says the
 * unit and what the value does. Where the value matters, the comment also says where it comes from,
 * and what happens at half and at twice the value. "ablation.md" stands for the rows that
 * docs/design/ablation.md has for the constant.
 */
#pragma once

#include "clock.h"

/* ns of debt at which a gang begins to close. To close takes some milliseconds, in which devices
 * wait for each other. Half, twice: ablation.md. */
#define GANG_SHUT_NS ((int64_t)-20000000)

/* A gang that takes long to close begins to close at a debt of GANG_CLOSING_TIMES times the time
 * that this takes, and of GANG_SHUT_MOST_NS ns at most. Half, twice of the former: ablation.md. */
#define GANG_CLOSING_TIMES 8
#define GANG_SHUT_MOST_NS  ((int64_t)-80000000)

/* ns of debt that a gang's device can have at most: docs/design/gangs.md says why. Half: kernels of
 * more than 0.5 s get more than a quota of 50. Twice: a job pauses for longer after them. */
#define GANG_DEBT_NS ((int64_t)-500000000)

/* ns after which a member that has not looked at its gang counts as idle. Half: hosts that
 * compute for so long are taken for stopped. Twice: a stopped rank is charged for longer. */
#define GANG_STALE_NS (1 * NS_PER_S)

/* ns after which the kernel is asked whether a member's process lives that has not looked at its
 * gang. The question is one system call. */
#define GANG_DEAD_NS (20 * NS_PER_MS)

/* ns for which a member that has become idle waits before it launches again. By then, the others
 * see the end of the collective that ended with it. Half, twice: ablation.md. */
#define GANG_GRACE_NS (50 * NS_PER_US)

/* ns of work in flight, about, that a member may have while it catches up with the member that has
 * launched the most collectives. Half, twice: ablation.md. */
#define GANG_CATCH_UP_NS (200 * NS_PER_US)

/* ns of closing in which members may catch up so. A member lags the others by at most the work that
 * a host launches ahead, GANG_AHEAD_LEAST_NS. Half: ablation.md. Twice: members whose numbers of
 * collectives cannot be compared spin for longer. */
#define GANG_CATCH_UP_FOR_NS (20 * NS_PER_MS)

/* The value of `part` (struct gang_member) of a member that launches as many collectives as any
 * other. */
#define GANG_PART_ONE 4096

/* ns of closing in which members go on, and of the first phase in which none does. Half:
 * jobs whose kernels are long spin in some closings. Twice: members that do not wait for each other
 * close later. */
#define GANG_SOFT_NS (100 * NS_PER_MS)
#define GANG_HARD_NS (25 * NS_PER_MS)

/* ns without any progress after which a launch is admitted: of a process with one device, and with
 * several. The time doubles for each launch so admitted. Half: kernels that take longer are
 * followed by one more in a closing. Twice: a thread that has to launch to another device first
 * waits longer. */
#define GANG_PATIENCE_NS         (20 * NS_PER_MS)
#define GANG_PATIENCE_SEVERAL_NS (1 * NS_PER_MS)

/* GANG_PATIENCE_NS for a process without work in flight, in a device's group. A kernel of another
 * process may wait for its launch. Half: after a kernel has run for 0.5 s, another process's launch
 * is admitted while the group closes. Twice: processes that wait for each other stand still for
 * longer. */
#define GANG_PATIENCE_IDLE_NS (1 * NS_PER_S)

/* ns of work in flight, about, with which a member's launches wait although the gang is open. Work
 * that a host has launched ahead becomes debt once the gang closes. Half: hosts that pause for so
 * long let their device run dry. Twice: a gang that closes uses so much more at once, and pauses
 * longer. */
#define GANG_AHEAD_NS (32 * NS_PER_MS)

/* GANG_AHEAD_NS for a gang that is about to close, or takes turns: launches that would be in flight
 * at the end wait. Half: a device can run dry just before. Twice: ranks are further apart as the
 * gang begins to close. */
#define GANG_AHEAD_LEAST_NS (4 * NS_PER_MS)

/* ns between two looks of such a launch. */
#define GANG_AHEAD_POLL_NS (500 * NS_PER_US)

/* ns after a launch has asked for a turn in which its gang counts as taking turns: no member may
 * have more than GANG_AHEAD_LEAST_NS in flight. Half: while a host pauses for that long, the others
 * may have more. Twice: a gang whose neighbours have left has so little in flight for longer. */
#define GANG_TURNED_NS (1 * NS_PER_S)

/* ns after a gang opens at which it closes again, if another slice still has the turn on one of its
 * devices. Half: a neighbour's long kernel makes the gang wait for another date. Twice: the gang's
 * other devices spin for longer. */
#define GANG_TURN_LATE_NS (5 * NS_PER_MS)

/* Within so many ns, a member that waits has looked whether the gang is open, and has said whether
 * it waits for its turn. Half: a gang launches without one of its turns. Twice: its devices are
 * idle for longer if one of its hosts no longer waits. */
#define GANG_TURN_SEEN_NS (GANG_DATE_POLL_NS + 100 * NS_PER_US)

/* ns for which a gang is taken to close at least. Half: the turns of a gang whose kernels are short
 * are too short to be worth the wait for the date. Twice: others wait longer for them. */
#define GANG_TURN_CLOSING_NS (500 * NS_PER_US)

/* ns between two looks of a shut gang at its date. Half: more of a processor. Twice: the gang's
 * devices are idle for longer where other slices become idle. */
#define GANG_DATE_POLL_NS (500 * NS_PER_US)

/* A gang that has work in flight for less than GANG_TURN_USE_PCT percent of its last GANG_TURN_USES
 * turns takes none for GANG_TURNLESS_NS. Its hosts are slower than its devices, which are idle in
 * part of its turns; without turns, others use them then. Percent half: data parallel training,
 * whose devices work for a third of its turns, goes on with them. 80: two jobs of CUDA graphs,
 * whose devices work for three quarters, get 0.35 of bare each instead of 0.46 (two H200s).
 * Openings half: chance decides. Twice: it is slower to see. ns half: a tenth of the time goes to
 * finding out. Twice: a gang that has become faster waits. */
#define GANG_TURN_USE_PCT 60
#define GANG_TURN_USES    8
#define GANG_TURNLESS_NS  (10 * NS_PER_S)

/* ns between two questions whether a turn of an open gang goes on. Half: launches are slower.
 * Twice: more is launched after the turn is over. */
#define GANG_TURN_EACH_NS (100 * NS_PER_US)

/* ns between two questions whether a turn has begun on one of an open gang's devices. */
#define GANG_TURN_POLL_NS (100 * NS_PER_US)

/* ns between questions while a gang closes; a sleep of 20 us takes some 75. */
#define GANG_POLL_NS (20 * NS_PER_US)

/*
 * MEET_EACH_NS: ns between two launches that a process shows to the slice's other processes.
 * MEET_NS: ns for which two processes that launch in turn count as sharing the device. Half of the
 * first: more of each launch's time. Twice: processes that begin together are found later. Half of
 * the second: two processes that launch in turn, each 0.5 to 1 s, have no group. Twice: one process
 * that is alone again pays longer for pauses between its launches.
 */
#define MEET_EACH_NS (1 * NS_PER_MS)
#define MEET_NS      (1 * NS_PER_S)

/* ns for which one process of several that share a device launches to it while another one waits.
 * Half: the device switches between them twice as often, some 0.5 ms each (H100). Twice: the others
 * wait for twice as long. */
#define GANG_HOLD_NS (10 * NS_PER_MS)

/* ns of debt at which such a group begins to close. Half: one process in a group of several
 * launches between two pauses. Twice: the slice is further off its quota at times. */
#define GANG_DEVICE_SHUT_NS ((int64_t)-10000000)

/* ns since the holder was last seen after which a waiting process launches alongside it. Half:
 * kernels of 20 ms run alongside others. Twice: if a kernel is longer, the others wait for longer.
 */
#define GANG_HOLD_SOFT_NS (40 * NS_PER_MS)

/* For how many ns at most a process waits for others that hold the device. Half: with many
 * processes, or rare turns of the slice, two processes launch at once, and the slice pays for a
 * part of their work. Twice: processes that wait for each other's kernels wait for twice as long.
 */
#define GANG_HOLD_MOST_NS (1 * NS_PER_S)

/* Several processes may share a device. Each expects its work in flight to last for twice the mean
 * time of a launch, for each launch, and for so many ns more. After that time, the others treat the
 * process as idle. Half: more kernels that are longer than the mean run alongside others. Twice: a
 * process whose host pauses keeps the others waiting for longer. */
#define GANG_EXPECT_NS (10 * NS_PER_MS)

/* ns for which a process leaves a free device to another one that has waited for longer. Half: it
 * takes the device before the other is awake. Twice: the device is idle for longer if the other has
 * gone. */
#define GANG_HOLD_GAVE_NS (200 * NS_PER_US)

/* ns from one mark to the next, and from one look to the next, while a gang is open. They are
 * MARK_LEAST_NS where launches find the device idle, and double for each look that finds it busy.
 * Half: one thread that serves two devices is a tenth slower than with twice (PyTorch, H100).
 * Twice: pauses of the device between launches that are shorter than that count as work. */
#define MARK_LEAST_NS (200 * NS_PER_US)
#define MARK_MOST_NS  (1 * NS_PER_MS)

/* ns for which each launch gets a mark of its own after the driver refused a mark that follows all
 * streams. The driver refuses such marks while a graph is captured. */
#define MARK_STREAMS_NS (500 * NS_PER_MS)

/* ns after which a launch that waits in turns looks again whether the process's own work is over.
 * Half: twice as many wake-ups. Twice: the device is idle for longer where work ends before it was
 * expected to. */
#define TURN_LOOK_NS NS_PER_MS

/* ns for which a process waits for its first launch in its turns, because that launch shows how
 * long launches take. Half: longer ones are followed by others that may be as long. Twice: a launch
 * that waits for the next one takes longer. */
#define TURN_UNKNOWN_NS      (20 * NS_PER_MS)
#define TURN_UNKNOWN_POLL_NS (20 * NS_PER_US)

/* The least pause in ns, from the end of a process's work to its next launch, in which the process
 * wanted nothing and pays nothing. Half: the slice gives turns up for shorter gaps. Twice: it pays
 * for longer ones. */
#define TURN_GAP_NS (100 * NS_PER_US)

/* ns of work that a process has in flight in its turn at most, with the launch that asks. Half: the
 * device waits for the host between kernels of 20 ms. Twice: two such kernels are in flight when
 * another slice begins to want the device, and the two slices' kernels meet. */
#define TURN_AHEAD_NS (21 * NS_PER_MS)

/* ns within which a device that has finished a stream's work reaches a mark that follows all
 * streams. Half: a slice that has become idle still looks busy, and others wait for longer. Twice:
 * a thread that has waited for a part of its work goes on later. */
#define TURN_MARK_NS (10 * NS_PER_US)

/* The mean time of a launch is of the last so many marks, about. */
#define MEAN_PART 4

/* ns from one question how long launches took to the next: the driver takes 3 us for the answer
 * (H100). Periods of at least this length are always measured. Half: a host whose device is often
 * idle loses 0.6 % more of its time (computed, not measured). Twice: changes are seen later. */
#define LEARN_EACH_NS (1 * NS_PER_MS)

/*
 * Launches without a mark may have run until the device was found idle. At most TAIL_MOST_NS of
 * that time is charged. It may contain a pause of the device: what is longer than those launches
 * take in the mean. For each TAIL_MARK_NS of the pause, one of the next launches gets a mark of its
 * own, but none does if that is less than the launches of a period. A mark takes 2 us of the host
 * and 2 us of the device (H200), so the marks take twice as long as the pause. Half of
 * TAIL_MARK_NS: training whose host is slow loses more of its speed by marks. Twice: a host that
 * pauses, and waits for nothing, is charged for twice as many of its pauses. Half of TAIL_MOST_NS:
 * longer kernels are charged in part, once. Twice: a container that is frozen as it launches waits
 * for twice as long afterwards.
 */
#define TAIL_MARK_NS (2 * NS_PER_US)
#define TAIL_MOST_NS (10 * NS_PER_S)

/* ns of short periods that stand for those that are not measured. Half: more of chance. */
#define PERIODS_NS (20 * NS_PER_MS)

/* -- one device ------------------------------------------------------------------------------- */

/* ns of GPU time that a bucket holds at most, where its device's burst_ns says nothing:
 * docs/design/pacing.md, "The bucket". Half: a program that takes as much as its quota of 30, in
 * pieces of 20 ms, gets 0.88 of the time that it wants. A server of requests of 1 ms that takes
 * 40 % under a quota of 50 has 1.25 times the p99 that it has without a quota, and 3 times the
 * p99.9. Twice: 4 to 5 points above the quota in the second after a pause.
 * tests/unit/pace_bursts.c prints these figures. */
#define BUCKET_FULL_NS ((int64_t)20000000)

/* ns of debt at which a bucket shuts. Half: a sleep for each 2 ms of work (ablation.md). Twice:
 * bursts are half a point longer. */
#define BUCKET_SHUT_NS ((int64_t)-4000000)

/* ns from one refill to the next. Each is a write of words that other processes read, too. Half:
 * twice as many. Twice: a launch can wait for 50 us more. */
#define BUCKET_REFILL_NS (50 * NS_PER_US)

/* ns by which the time of a refill can be before the time of the last one. A thread reads the
 * clock, and another thread refills before it does. A time that is further back is of another boot.
 * Any value from 1 ms to some seconds does. */
#define BUCKET_BEHIND_NS (20 * NS_PER_MS)

/* The most ns since the last refill that bring credit: any bucket is full by then, if it has no
 * debt. Half, or twice: no difference but to debts of seconds. */
#define BUCKET_PAUSE_NS (10 * NS_PER_S)

/* Entries of a process's table of costs, of 32 bytes; a power of two. Half: a program with more
 * than some 1,500 kinds of launches forgets costs. Twice: 128 KiB more in each process. */
#define COST_ENTRIES 4096

/* Places for one key. Half: keys give each other up in a table that is half full. Twice: a look-up
 * of an unknown key reads two more cache lines. */
#define COST_PROBES 8

/* A cost is guessed from another grid of the function if their numbers of blocks differ by this
 * factor at most. Half: more launches of unknown cost, each of which is waited for. Twice: guesses
 * that are further off. */
#define COST_GUESS_TIMES 16

/* ns of a sample that a guess is made from, at most: its product with blocks fits into 64 bits. */
#define COST_GUESS_MOST_NS ((uint64_t)1000000000)

/* Number of samples until a cost is no longer new. Less: a first launch, which loads code,
 * decides alone. Twice: twice as many samples of each new kind of launch. */
#define COST_SAMPLES_NEW 3

/* Runs of a kernel that waits for launches until its cost is learned again; four long ones count
 * as many. Half: a tuner's kernel is waited for twice as often. Twice: a kernel that was wrongly
 * taken for one that waits is charged late for longer. */
#define COST_WAITS 32

/* A thread looks at the clock after GATE_LOOK_MOST launches at most, and after GATE_LOOK_NS. A
 * lease lasts for GATE_LOOK_NS. last_kernel_time is to be true to a second. Half: more reads of the
 * clock. Twice: a thread that launches rarely shows itself later. */
#define GATE_LOOK_MOST 64
#define GATE_LOOK_NS   (10 * NS_PER_MS)

/* The most ns by which last_kernel_time may be out of date when a launch looks at it. Monitors
 * read it in seconds. */
#define GATE_NOTE_NS (NS_PER_S / 4)

/* ns from the time at which work should finish, by its cost, until it is overdue. OVERDUE_BEHIND_NS
 * holds where other work may run first: of other streams or neighbours, or after stalls. */
#define OVERDUE_NS        (1 * NS_PER_MS)
#define OVERDUE_BEHIND_NS (20 * NS_PER_MS)

/* ns for which a launch waits for work of unknown cost: at first (PATIENCE_NS); as learned, from
 * PATIENCE_LEAST_NS to PATIENCE_MORE_NS; and PATIENCE_MOST_NS for any wait. XLA's autotuner starts
 * kernels that wait for later launches for 100 ms at most. */
#define PATIENCE_NS       (4 * NS_PER_MS)
#define PATIENCE_LEAST_NS (2 * NS_PER_MS)
#define PATIENCE_MORE_NS  (32 * NS_PER_MS)
#define PATIENCE_MOST_NS  (1024 * NS_PER_MS)

/* Factors of that wait. PATIENCE_KNOWN is for overdue work of known cost, of which much may be in
 * flight. PATIENCE_ALIKE is for a launch of the overdue kernel itself, which hardly waits for
 * itself. Half, twice: no difference in random programs. 1: eight or nine of the pacer's tests
 * fail. */
#define PATIENCE_KNOWN 32
#define PATIENCE_ALIKE 64

/* The least and the most ns between two looks for finished spans. Half: twice as many questions
 * to the driver. Twice: corrections come later. */
#define SETTLE_EACH_NS (100 * NS_PER_US)
#define SETTLE_MOST_NS (1 * NS_PER_MS)

/* ns: a kernel that ended sooner than this after a waiting launch was admitted probably waited for
 * that launch. Half: kernels that wait are missed if the device is slow to begin a launch. Twice:
 * more kernels that end by chance count as kernels that wait. */
#define OVERDUE_WAITED_NS (2 * NS_PER_MS)

/* Launches that are admitted at once after a kernel that may wait for them, and the debt in ns at
 * which they wait nevertheless. Half: XLA's autotuner, which queues some ten launches, waits.
 * Twice: a kernel that is wrongly taken for one that waits admits more launches. */
#define OVERDUE_AWAITED    16
#define OVERDUE_AWAITED_NS ((int64_t)-32000000)

/*
 * The size of a lease is the least of three times. The first is one part in LEASE_PART of the time
 * that may be charged until the bucket shuts. The second is LEASE_NS for each LEASE_AFTER launches
 * that the thread has made. The third is LEASE_MOST_NS, the most that is lost if the thread ends. A
 * larger lease: a slice can go further into debt. A smaller one: more launches ask, which takes 0.5
 * to 1 us of a processor each.
 */
#define LEASE_PART    16
#define LEASE_NS      (128 * NS_PER_US)
#define LEASE_MOST_NS (500 * NS_PER_US)

/* Launches of one part of a lease, eight times as many in relaxed mode; and how many parts a lease
 * has there, where it has one elsewhere. Half: twice as many launches ask. Twice: no difference, as
 * leases end for other reasons. */
#define LEASE_LAUNCHES 16
#define LEASE_PARTS    3

/* The longest pause in ns between two launches under a lease, eight times as long in relaxed mode.
 * Only a launch that asks finds out what the device did in a longer pause. Half: programs that
 * prepare each launch for longer have no leases. Twice: longer pauses are estimated by costs. */
#define LEASE_GAP_NS (32 * NS_PER_US)

/* Launches of a thread until it gets leases; its leases grow after as many more. Half: threads that
 * end soon leave more uncharged. Twice: threads that end soon ask for each launch. */
#define LEASE_AFTER 256

/* ns for which the process counts as one that changes streams, contexts or threads after it last
 * did so. The same holds for stalls. Half: a program that changes streams each 0.3 s is measured as
 * one of a single stream in between. Twice: a program that has stopped changing streams is measured
 * by fences for longer. */
#define METER_MIXED_NS (500 * NS_PER_MS)

/* The factor of relaxed mode: windows, and the parts of leases, have so many times as many
 * launches. Samples and questions to the driver are so many times as rare. Half: measuring takes
 * twice as much of a processor from programs that want less than their quota. Twice: changed costs
 * are seen later. */
#define METER_RELAXED 8

/* Relaxed mode ends when waits take so many ns longer than costs explain, as costs may be too low
 * (meter->unexplained_ns). Without this: ablation.md. */
#define METER_UNEXPLAINED_NS (100 * NS_PER_US)

/* ns of credit above which measuring is relaxed (meter_relax_factor). Half: programs that are about
 * to wait for the bucket are measured less closely. Twice, or five times: no difference to the
 * random programs of tests/unit/pace_programs.c. Programs that want most of their quota are
 * measured closely more often, which costs them time on the host. */
#define METER_CREDIT_NS ((int64_t)2000000)

/*
 * PROBE_EACH_NS: ns from one probe for neighbours to the next. PROBE_NS: ns within which an idle
 * device reaches an event. PROBE_COUNT: the number of probes without a neighbour after which none
 * is assumed. An idle H100 mostly takes 5 us, one probe in 400 takes 40 to 60, and a neighbour's
 * time slice lasts some 2 ms. A fifth of the time: such a probe is taken for a neighbour. Twice:
 * more of the time slices are missed. Half of the number: neighbours that work for a third of the
 * time are missed.
 */
#define PROBE_EACH_NS (20 * NS_PER_MS)
#define PROBE_NS      (200 * NS_PER_US)
#define PROBE_COUNT   64

/* ns from one question whether a stream is busy to the next. ASK_EACH_NS holds while the stream is
 * busy by its costs, and ASK_IDLE_NS while it is not. A question takes half as long as a launch. */
#define ASK_EACH_NS (200 * NS_PER_US)
#define ASK_IDLE_NS (50 * NS_PER_US)

/* A thread that waits for the bucket wakes up NAP_AFTER_NS after the next span is due, or after
 * NAP_AFTER_NS if a span is overdue. NAP_CHARGING_NS: its sleep in ns while another thread launches
 * first. Half: more wake-ups. Twice: finished work is seen later, and threads leave the device
 * idle. */
#define NAP_AFTER_NS    (100 * NS_PER_US)
#define NAP_CHARGING_NS (10 * NS_PER_US)

/* ns of a launch's call after which other threads' launches are admitted although this one is not
 * charged. The call may wait in the driver for another thread's launch. */
#define CHARGING_MOST_NS (NS_PER_MS / 2)

/* ns by which the time between two events around one kernel is longer than the kernel.
 * EVENT_LEAST_NS and EVENT_MOST_NS hold among other kernels, on two H200; EVENT_IDLE_NS, if the
 * device waited for the launch. Half or twice: kernels of 2 us are charged a third less or more. */
#define EVENT_LEAST_NS 1400
#define EVENT_MOST_NS  2050
#define EVENT_IDLE_NS  420

/* The least time in ns that a sample gives a kernel: no kernel takes less. */
#define SAMPLE_LEAST_NS ((int64_t)300)

/* ns charged for a launch of unknown cost that cannot be measured. */
#define SAMPLE_BLIND_NS (100 * NS_PER_US)

/* ns from one sample of a cost to the next: SAMPLE_NEW_NS for the first few, and SAMPLE_EVERY_NS
 * for the rest, with at most SAMPLE_SPREAD_NS added at random. SAMPLE_APART_NS: ns from a sample of
 * one cost to that of another. */
#define SAMPLE_NEW_NS    (NS_PER_MS / 2)
#define SAMPLE_EVERY_NS  (10 * NS_PER_MS)
#define SAMPLE_SPREAD_NS (5 * NS_PER_MS)
#define SAMPLE_APART_NS  (1 * NS_PER_MS)

/* Of launches that are due, one in 2 to the power of so many is sampled. */
#define SAMPLE_DUE_LOG2 3

/* A sample's estimate of the work before its launch. If the device is not idle, the estimate is
 * at least SAMPLE_AHEAD_NS. If it is less than SAMPLE_SOON_NS, the driver is asked SAMPLE_ASKS
 * times whether the device is idle, because it will be soon. */
#define SAMPLE_AHEAD_NS (100 * NS_PER_US)
#define SAMPLE_SOON_NS  (10 * NS_PER_US)
#define SAMPLE_ASKS     6

/* How many times the driver is asked whether a sample has begun, where there are neighbours. A
 * question takes at least 100 ns; neighbours' time slices are a thousand times as long. */
#define SAMPLE_ASKS_BEGUN 32

/* ns: a driver's call for a launch that takes longer may have returned after the kernel finished.
 * Calls take 2 to 5 us. */
#define SAMPLE_CALL_NS (16 * NS_PER_US)

/* SPAN_CONTEXTS contexts of a process have spans at most, and each of them has SPAN_COUNT. At most
 * SPAN_CLOSED_MOST of these are closed: more would add little information. */
#define SPAN_CONTEXTS    256
#define SPAN_COUNT       64
#define SPAN_CLOSED_MOST 16

/* Mean ns between two windows that end at a wait for work; in relaxed mode, SYNC_RELAXED times
 * as long. */
#define SYNC_WINDOW_NS (250 * NS_PER_US)
#define SYNC_RELAXED   4

/* The bound of meter->idle_waits, which counts waits that may be for less than all work. A wait
 * that left the device idle adds 2; another wait subtracts 1. Above 0, such waits end windows.
 * Without this: ablation.md. */
#define SYNC_IDLE 8

/* A waiting thread takes SYNC_WAKE_NS to wake up after its work has finished. A wait takes at most
 * SYNC_AT_ONCE_NS if the work had finished before. */
#define SYNC_WAKE_NS    (20 * NS_PER_US)
#define SYNC_AT_ONCE_NS (2 * NS_PER_US)

/* meter->unexplained_ns falls by one ns for each SYNC_UNEXPLAINED_PART ns that pass, and is at
 * most SYNC_UNEXPLAINED_MOST_NS. */
#define SYNC_UNEXPLAINED_PART    16
#define SYNC_UNEXPLAINED_MOST_NS (10 * METER_UNEXPLAINED_NS)

/* Copies of fewer bytes to or from the host take no longer than a launch, and end no window. Copies
 * of SYNC_COPY_LONG bytes take 20 us. Without either: ablation.md. */
#define SYNC_COPY_BYTES ((uint64_t)64 << 10)
#define SYNC_COPY_LONG  ((uint64_t)1 << 20)

/* A window ends at so many ns of charges, eight times as many in relaxed mode; or of time; or at so
 * many launches. Half: twice as many events. Twice: changed costs are wrong for longer. */
#define WINDOW_NS       (1 * NS_PER_MS)
#define WINDOW_LONG_NS  (50 * NS_PER_MS)
#define WINDOW_LAUNCHES 128

/* A window measures nothing if more than one part in WINDOW_IDLE_PART of its time is idle, apart
 * from WINDOW_IDLE_NS before its first launch. If more than one part in WINDOW_ASK_PART is idle,
 * the driver is asked whether the device has reached the window's begin. */
#define WINDOW_IDLE_PART 4
#define WINDOW_IDLE_NS   (100 * NS_PER_US)
#define WINDOW_ASK_PART  16

/* ns that windows with neighbours may find too little by chance. Half: chance is charged. Twice:
 * costs that are too low stay in use for longer. */
#define WINDOW_OWED_NS ((int64_t)16000000)

/* In relaxed mode: the least age in ns of a window at which another one is opened after it, where
 * the device idles. WINDOW_STALE_NS: ns after a window's last launch at which the window is
 * dropped. */
#define WINDOW_YOUNG_NS (4 * NS_PER_MS)
#define WINDOW_STALE_NS (20 * NS_PER_MS)

/* WINDOW_EVENT_NS: ns between the two events of a window that are no work. WINDOW_EVENT_SLACK_NS:
 * ns that are missing from a window with little work on an idle device. Both were measured on an
 * H200. */
#define WINDOW_EVENT_NS       1300
#define WINDOW_EVENT_SLACK_NS 900

/* The least and the greatest scale of costs. The scale is computed from about SCALE_WINDOWS
 * windows, each of which counts for at most WINDOW_WEIGHS_NS. A window without a measurement moves
 * the scale back by one part in SCALE_BACK. */
#define SCALE_LEAST      (1 / 32.0)
#define SCALE_MOST       2.0
#define SCALE_WINDOWS    8
#define WINDOW_WEIGHS_NS (2.0 * (double)WINDOW_NS)
#define SCALE_BACK       64
