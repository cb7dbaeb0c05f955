// SPDX-License-Identifier: Apache-2.0

package life

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// FullAttack reports whether CAPMAAS_CHAOS asks for all that an attack can do, instead of a bounded part.
func FullAttack() bool { return os.Getenv("CAPMAAS_CHAOS") == "full" }

// AttackSeed returns the seed in CAPMAAS_CHAOS_SEED. Without one, a full attack has another seed each time, and a bounded
// one always the same.
func AttackSeed(bounded int64) (int64, error) {
	if text := os.Getenv("CAPMAAS_CHAOS_SEED"); text != "" {
		seed, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading CAPMAAS_CHAOS_SEED: %w", err)
		}
		return seed, nil
	}
	if FullAttack() {
		return time.Now().Unix(), nil
	}
	return bounded, nil
}
