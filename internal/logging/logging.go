// SPDX-License-Identifier: Apache-2.0

// Package logging makes the log of a program.
package logging

import (
	"fmt"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New returns a logger over zap that writes to standard error: level is debug, info or error, format is json or text.
func New(level, format string) (logr.Logger, error) {
	config := zap.NewProductionConfig()
	config.EncoderConfig.EncodeTime = zapcore.RFC3339TimeEncoder
	config.Sampling = nil
	config.DisableStacktrace = true
	switch format {
	case "json":
	case "text":
		config.Encoding = "console"
	default:
		return logr.Logger{}, fmt.Errorf("--log-format is json or text, not %q", format)
	}
	parsed, err := zapcore.ParseLevel(level)
	if err != nil {
		return logr.Logger{}, fmt.Errorf("--log-level is debug, info or error, not %q", level)
	}
	config.Level = zap.NewAtomicLevelAt(parsed)
	logger, err := config.Build()
	if err != nil {
		return logr.Logger{}, fmt.Errorf("making the logger: %w", err)
	}
	return zapr.NewLogger(logger), nil
}
