/* Eight threads look functions up at once, the first lookups of their process, in several ways; in
 * process after process. All get the same, and are held. */
#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"
#include "ways.h"

enum {
	THREADS = 8,
	ROUNDS = 120,
	HELD_EVERY = 20, /* rounds */
};

static unsigned waiting = THREADS; /* they start when it is 0 */

static struct answers {
	void *late, *allocate; /* the first is far down in the tables */
} answers[THREADS];

static void *look_up(void *arg)
{
	static void *(*const finds[])(const char *symbol) = {by_default, by_default, by_next,
							     by_default};
	struct answers *ret_answers = arg;
	void *(*find)(const char *symbol) = finds[(size_t)(ret_answers - answers) % 4];

	__atomic_sub_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&waiting, __ATOMIC_SEQ_CST))
		; /* not asleep: those that run now shall be in the lookup at one time */
	ret_answers->late = find("cuDeviceTotalMem_v2");
	ret_answers->allocate = find("cuMemAlloc_v2");
	return NULL;
}

static void round_of_lookups(bool with_allocations)
{
	pthread_t threads[THREADS];

	for (size_t i = 0; i < THREADS; i++)
		CHECK_SAYING(!pthread_create(&threads[i], NULL, look_up, &answers[i]), "no thread");
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	find_driver(by_handle);
	for (size_t i = 0; i < THREADS; i++)
		CHECK_SAYING(answers[i].late == by_handle("cuDeviceTotalMem_v2") &&
				     answers[i].allocate == (void *)found.cuMemAlloc_v2,
			     "thread %zu finds something else", i);
	if (with_allocations) {
		usleep(100000); /* the kernel may let go of the last one's files a little after its
				   death */
		check_held();
	}
}

int main(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		int status;
		pid_t child = fork();

		CHECK_SAYING(child >= 0, "no process");
		if (!child) {
			round_of_lookups(i % HELD_EVERY == 0);
			exit(0);
		}
		waitpid(child, &status, 0);
		CHECK_SAYING(WIFEXITED(status) && WEXITSTATUS(status) == 0,
			     "round %d ends with status %#x", i, (unsigned)status);
	}
	return 0;
}
