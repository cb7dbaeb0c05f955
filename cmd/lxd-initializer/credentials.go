// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

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

// config reads the files each time, so that replaced ones are used at once. Errors are *maas.ConfigError, joined.
func (c credentials) config() (maas.Config, error) {
	given := maas.Config{Endpoint: c.endpoint, APIKey: c.apiKey}
	if c.fromFile {
		key, err := os.ReadFile(c.apiKey)
		if err != nil {
			// The path is not shown: it may be a key that was given by mistake.
			return maas.Config{}, &maas.ConfigError{Field: "apiKey", Problem: fmt.Sprintf("its file: %v", errors.Unwrap(err))}
		}
		given.APIKey = strings.TrimSpace(string(key))
		if given.APIKey == "" {
			return maas.Config{}, &maas.ConfigError{Field: "apiKey", Problem: "its file is empty: put an API key into it"}
		}
	}
	config, err := maas.ReadConfig(c.dir, given)
	if err != nil {
		return maas.Config{}, err
	}
	return config, config.Validate()
}
