/* For symbols that a plugin or a wrapper exports. */
#pragma once

#define EXPORT __attribute__((visibility("default")))
