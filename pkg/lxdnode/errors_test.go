// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/canonical/lxd/shared/api"
)

func TestPermanentChecksEveryError(t *testing.T) {
	passing := &Error{Step: StepPool, Problem: "busy"}
	lasting := &Error{Step: StepPool, Problem: "broken", Permanent: true}
	cases := map[string]struct {
		err  error
		want bool
	}{
		"none":                {nil, false},
		"another":             {errors.New("something"), false},
		"passing":             {passing, false},
		"lasting":             {lasting, true},
		"lasting, wrapped":    {fmt.Errorf("node: %w", lasting), true},
		"a setting":           {&SettingError{Setting: SettingProject}, true},
		"passing and lasting": {errors.Join(passing, errors.New("something"), fmt.Errorf("node: %w", lasting)), true},
		"passing and passing": {errors.Join(passing, passing), false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Permanent(c.err); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}

func TestErrorsKeepTheirCauseAndSeparateSilenceFromRefusal(t *testing.T) {
	refusal := api.StatusErrorf(http.StatusInternalServerError, "no")
	cases := map[string]struct {
		cause      error
		unanswered bool
	}{
		"refused":       {refusal, false},
		"timeout":       {context.DeadlineExceeded, true},
		"no connection": {errors.New("connection refused"), true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := asError(StepPool, "making a pool", c.cause)
			if !errors.Is(err, c.cause) || err.Step != StepPool || err.Permanent {
				t.Errorf("got %#v", err)
			}
			if unanswered(err) != c.unanswered {
				t.Errorf("unanswered = %t", unanswered(err))
			}
			if again := asError(StepBridge, "something else", err); again != err {
				t.Errorf("an error that is known became %v", again)
			}
		})
	}
	if unanswered(&Error{Step: StepPool, Permanent: true}) {
		t.Error("the content of LXD's response counts as silence")
	}
}

func TestUnfinishedPoolsAreDistinguished(t *testing.T) {
	cases := map[string]struct {
		status, source    string
		usable, permanent bool
	}{
		"made":             {api.StoragePoolStatusCreated, "/x.img", true, false},
		"being made":       {api.StoragePoolStatusPending, "", false, false},
		"cut off":          {api.StoragePoolStatusUnvailable, "", false, true},
		"out of reach now": {api.StoragePoolStatusUnvailable, "/x.img", false, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := usable(&api.StoragePool{Name: "p", Status: c.status, Config: map[string]string{"source": c.source}})
			if (err == nil) != c.usable || Permanent(err) != c.permanent {
				t.Errorf("got %v", err)
			}
		})
	}
}
