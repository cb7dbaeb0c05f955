// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// maxFile bounds the size of a key or a CA bundle, in bytes.
const maxFile = 1 << 20

// errNoKey means that no key is given.
var errNoKey = errors.New("the API key is missing: give --maas-api-key-file, set MAAS_API_KEY, or name the " +
	"management cluster in --kubeconfig")

// key returns the API key from the command line, the file, or the environment. Errors contain no part of it.
func (o *options) key(onCommandLine bool, s surroundings) (string, error) {
	var text []byte
	var err error
	switch {
	case onCommandLine && o.apiKeyFile != "":
		return "", errors.New("--maas-api-key and --maas-api-key-file: give one of them")
	case onCommandLine:
		fmt.Fprintln(s.err, "warning: a key on the command line can be read by everybody on this machine; "+
			"--maas-api-key-file and MAAS_API_KEY keep it private")
		text = []byte(o.apiKey)
	case o.apiKeyFile == "-":
		text, err = io.ReadAll(io.LimitReader(s.in, maxFile))
	case o.apiKeyFile != "":
		text, err = readSmall(o.apiKeyFile)
	default:
		text = []byte(s.getenv("MAAS_API_KEY"))
	}
	if err != nil {
		return "", fmt.Errorf("--maas-api-key-file: %w", err)
	}
	key := strings.TrimSpace(string(text))
	if key == "" {
		return "", errNoKey
	}
	return key, nil
}

// readSmall returns the content of a file, or nil if name is "".
func readSmall(name string) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	file, err := os.Open(name)
	var path *fs.PathError
	if errors.As(err, &path) {
		return nil, path.Err // without the name: a user may have given the key instead of a file
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxFile))
}
