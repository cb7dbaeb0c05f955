// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"io"
	"log"
	"os"
	"sync"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// The loggers of controller-runtime, klog and the standard library are set once for the process, and sandboxes come and
// go: logs are written to the file of the sandbox that started last, and nowhere while there is none. Never to the
// terminal.
var (
	logTarget  = &switchWriter{}
	logger     = newLogger(logTarget)
	setLoggers sync.Once
)

func newLogger(w io.Writer) logr.Logger {
	config := zap.NewProductionEncoderConfig()
	config.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoder := zapcore.NewJSONEncoder(config)
	return zapr.NewLogger(zap.New(zapcore.NewCore(encoder, zapcore.AddSync(w), zapcore.InfoLevel)))
}

// logTo directs everything that is logged in this process to a file.
func logTo(file *os.File) logr.Logger {
	setLoggers.Do(func() {
		ctrl.SetLogger(logger)
		klog.SetLogger(logger.WithName("klog"))
		log.SetOutput(logTarget)
	})
	logTarget.set(file)
	return logger
}

// switchWriter writes to the current writer.
type switchWriter struct {
	mutex  sync.Mutex
	target io.Writer
}

func (w *switchWriter) set(target io.Writer) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.target = target
}

// unset stops writing to a target, unless another has taken its place.
func (w *switchWriter) unset(target io.Writer) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.target == target {
		w.target = nil
	}
}

func (w *switchWriter) Write(p []byte) (int, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.target == nil {
		return io.Discard.Write(p)
	}
	return w.target.Write(p)
}
