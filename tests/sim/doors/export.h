/* What a plugin or a wrapper shows to others. */
#pragma once

#define EXPORT __attribute__((visibility("default")))
