#include "shares_done.h"

#include <math.h>
#include <stdlib.h>

#define PAUSE 1.5 /* times what most launches took: the GPU had nothing to do in between */

static int by_time(const void *a, const void *b)
{
	const struct done *x = a, *y = b;

	return (x->at_us > y->at_us) - (x->at_us < y->at_us);
}

void done_sort(struct done *done, size_t count)
{
	qsort(done, count, sizeof(*done), by_time);
}

double done_share_since(const struct done *done, size_t count, double from_us)
{
	double work_us = 0;
	size_t first = 0;

	while (first < count && done[first].at_us < from_us)
		first++;
	for (size_t i = first + 1; i < count; i++)
		work_us += done[i].us;
	return first + 1 < count ? work_us / (done[count - 1].at_us - done[first].at_us) : 0;
}

double done_share_between(const struct done *done, size_t count, double from_us, double to_us)
{
	double work_us = 0;

	for (size_t i = 0; i < count; i++) {
		double begin_us = fmax(done[i].at_us - done[i].us, from_us);
		double end_us = fmin(done[i].at_us, to_us);

		if (end_us > begin_us)
			work_us += end_us - begin_us;
	}
	return work_us / (to_us - from_us);
}

static int by_length(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

bool done_count_by_time(struct done *done, size_t count)
{
	double *took_us = calloc(count + 1, sizeof(*took_us)), most_us;

	if (!took_us)
		return false;
	for (size_t i = 1; i < count; i++)
		took_us[i] = done[i].us = done[i].at_us - done[i - 1].at_us;
	qsort(took_us + 1, count ? count - 1 : 0, sizeof(*took_us), by_length);
	most_us = count > 1 ? took_us[count / 2] : 0;
	for (size_t i = 0; i < count; i++)
		if (i == 0 || done[i].us > PAUSE * most_us)
			done[i].us = most_us;
	free(took_us);
	return true;
}
