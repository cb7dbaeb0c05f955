// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// credentials are the sources of the credentials for MAAS.
type credentials struct {
	endpoint string
	apiKey   string // the key itself, or the file that holds it
	fromFile bool   // apiKey is a file
	dir      string // has the files of credentials that are not set otherwise
}

// credentialVariables are the settings of the fields of maas.Config.
var credentialVariables = map[string]string{"endpoint": "MAAS_ENDPOINT", "apiKey": "MAAS_API_KEY",
	"caBundle": "MAAS_CONFIG_DIR"}

// config reads the files each time, so that replaced ones are used at once. Errors are *maas.ConfigError, joined: the
// first of each field.
func (c credentials) config() (maas.Config, error) {
	given, errs := maas.Config{Endpoint: c.endpoint, APIKey: c.apiKey}, []error(nil)
	if c.fromFile {
		key, err := keyIn(c.apiKey)
		errs = append(errs, err)
		given.APIKey = key
	}
	config, err := maas.ReadConfig(c.dir, given)
	errs = append(append(errs, guard.Parts(err)...), guard.Parts(config.Validate())...)
	told := map[string]bool{}
	err = errors.Join(slices.DeleteFunc(errs, func(err error) bool {
		field, is := errors.AsType[*maas.ConfigError](err)
		again := is && told[field.Field]
		if is {
			told[field.Field] = true
		}
		return again
	})...)
	return config, err
}

// keyIn reads the key from its file.
func keyIn(file string) (string, error) {
	content, err := os.ReadFile(file)
	key := strings.TrimSpace(string(content))
	switch {
	case err != nil:
		// The path is not shown: it may be a key that was given by mistake.
		return "", &maas.ConfigError{Field: "apiKey", Problem: fmt.Sprintf("its file: %v", errors.Unwrap(err))}
	case key == "":
		return "", &maas.ConfigError{Field: "apiKey", Problem: "its file is empty: put an API key into it"}
	}
	return key, nil
}
