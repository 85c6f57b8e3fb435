/*
 * Faults that a test has scripted: this call fails with that result, this symbol does not exist.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

/* -1 before the environment was read; 0 if there are no rules, and faults_due is not called. */
extern _Atomic int faults_armed;

/* Counts a call of `function`; the result that it must return at once, 0 if none. */
int faults_due(const char *function);

/* The call is about to return. Waits, if a rule of VGPU_SIM_PARK says so. */
void faults_done(const char *function);

/* Whether VGPU_SIM_MISSING lists the name. */
bool faults_missing(const char *function);

/* Whether this library exports that name. Each library has a definition of its own. */
bool library_exports(const char *name);

/* To be called first by every exported function, with __func__. */
static inline int faults_enter(const char *function)
{
	return atomic_load_explicit(&faults_armed, memory_order_acquire) ? faults_due(function) : 0;
}
