/* Labels of metrics, with memory and without. */
#include "prom.h"
#include "unit.h"

static bool fails;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

void *__wrap_malloc(size_t size)
{
	return fails ? NULL : __real_malloc(size);
}

UNIT_TEST(test_labels_are_escaped)
{
	struct text labels = {0};

	prom_label(&labels, "slice", "a\"b");
	prom_label(&labels, "kind", "run");
	assert_false(labels.failed);
	assert_string_equal(labels.bytes, "slice=\"a\\\"b\",kind=\"run\"");
	text_free(&labels);
}

/* Two slices with an empty label would be one series twice, and Prometheus refuses a whole answer
 * with that. */
UNIT_TEST(test_a_label_without_memory_is_a_failure)
{
	struct text labels = {0};

	prom_label(&labels, "kind", "run");
	fails = true;
	prom_label(&labels, "slice", "a");
	fails = false;
	assert_true(labels.failed);
	text_free(&labels);
}
