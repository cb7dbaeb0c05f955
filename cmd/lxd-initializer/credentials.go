// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Files below the MAAS config dir, as the manager has them.
const (
	endpointFile = "config/maasEndpoint"
	apiKeyFile   = "credentials/apiKey"
	caBundleFile = "credentials/caBundle"
)

// credentials are the sources of the credentials for MAAS.
type credentials struct {
	endpoint string
	apiKey   string // the key itself, or the file that holds it
	fromFile bool   // apiKey is a file
	dir      string // has the files of credentials that are not set otherwise
}

// credentialError is a problem of MAAS's endpoint, the API key or the CA bundle. It never shows them.
type credentialError struct {
	variable string // of the setting
	problem  string
}

func (e *credentialError) Error() string { return e.variable + ": " + e.problem }

// config reads the files each time, so that replaced ones are used at once. Errors are *credentialError, joined.
func (c credentials) config() (maas.Config, error) {
	var errs []error
	read := func(variable, path string, optional bool) string {
		content, err := os.ReadFile(filepath.Clean(path))
		switch {
		case err == nil:
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, &credentialError{variable, path + " can't be read"})
		case !optional:
			errs = append(errs, &credentialError{variable, fmt.Sprintf("it is not given, and there is no file %s", path)})
		}
		return strings.TrimSpace(string(content))
	}
	config := maas.Config{Endpoint: c.endpoint, APIKey: c.apiKey}
	if c.endpoint == "" {
		config.Endpoint = read("MAAS_ENDPOINT", filepath.Join(c.dir, endpointFile), false)
	}
	switch {
	case c.fromFile:
		config.APIKey = read("MAAS_API_KEY", c.apiKey, false)
	case c.apiKey == "":
		config.APIKey = read("MAAS_API_KEY", filepath.Join(c.dir, apiKeyFile), false)
	}
	if bundle := read("MAAS_CONFIG_DIR", filepath.Join(c.dir, caBundleFile), true); bundle != "" {
		config.CABundle = []byte(bundle)
	}
	return config, errors.Join(append(errs, invalid(config, errs)...)...)
}

// credentialVariables are the settings of the fields of maas.Config.
var credentialVariables = map[string]string{"endpoint": "MAAS_ENDPOINT", "apiKey": "MAAS_API_KEY",
	"caBundle": "MAAS_CONFIG_DIR"}

// invalid returns the errors in the form of values, except of those that could not be read.
func invalid(config maas.Config, unread []error) []error {
	reported := map[string]bool{}
	for _, err := range unread {
		if credential, is := errors.AsType[*credentialError](err); is {
			reported[credential.variable] = true
		}
	}
	var errs []error
	for _, err := range guard.Parts(config.Validate()) {
		if field, is := errors.AsType[*maas.ConfigError](err); is && !reported[credentialVariables[field.Field]] {
			errs = append(errs, &credentialError{credentialVariables[field.Field], field.Field + ": " + field.Problem})
		}
	}
	return errs
}
