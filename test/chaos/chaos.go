// SPDX-License-Identifier: Apache-2.0

// Package chaos says how much an attack is to do.
package chaos

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// Full reports whether CAPMAAS_CHAOS asks for all that an attack can do, instead of a bounded part.
func Full() bool { return os.Getenv("CAPMAAS_CHAOS") == "full" }

// Seed returns the seed in CAPMAAS_CHAOS_SEED. Without one, a full attack has another seed each time, and a bounded
// one always the same.
func Seed(bounded int64) (int64, error) {
	if text := os.Getenv("CAPMAAS_CHAOS_SEED"); text != "" {
		seed, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading CAPMAAS_CHAOS_SEED: %w", err)
		}
		return seed, nil
	}
	if Full() {
		return time.Now().Unix(), nil
	}
	return bounded, nil
}
