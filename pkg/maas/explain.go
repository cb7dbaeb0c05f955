// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

// isUntrusted reports whether a server responds that can't prove to be MAAS.
func isUntrusted(err error) bool {
	return guard.Is[*tls.CertificateVerificationError](err) || errors.Is(err, http.ErrSchemeMismatch)
}

// Names are how a user gives a MAAS: as the remedies call it.
type Names struct{ Endpoint, CABundle string }

// Explain returns what the error of a call means that asks for no certain object, and what helps, in the words of
// conditions: what they name is in a Secret.
func Explain(err error) (found, remedy string) {
	return Names{Endpoint: "the endpoint", CABundle: "caBundle"}.Explain(err)
}

// Explain is the function Explain for those who give a MAAS by other names. MAAS's message for a wrong key is not
// repeated: it may hold the secret of the right one.
func (n Names) Explain(err error) (found, remedy string) {
	var certificate *tls.CertificateVerificationError
	var e *Error
	switch {
	case errors.As(err, &certificate):
		return n.certificate(certificate.Err)
	case errors.Is(err, http.ErrSchemeMismatch):
		return "a server responds, and speaks no TLS", n.Endpoint + " begins with http:// there, not with https://"
	case !errors.As(err, &e):
		return err.Error(), ""
	}
	switch {
	case e.Kind == Unauthorized:
		return "MAAS refuses the API key",
			"give a key that MAAS shows in the user's preferences; the clocks here and there must differ by less than 5 minutes"
	case e.Kind == Forbidden:
		return "MAAS forbids it to the API key's user (" + e.Message + ")",
			"unlock the machine if it is locked, or use the API key of an administrator or, from MAAS 3.8 on, of a user with " +
				"the entitlements of docs/security.md"
	case e.Kind == Gone:
		return "this MAAS has no VM hosts (MAAS 4.0 and newer)", "add LXDHosts, or use bare metal"
	case e.isElsewhere():
		return fmt.Sprintf("a server responds, but it has no %s", e.Endpoint),
			n.Endpoint + " is the URL of MAAS's web interface up to /MAAS, such as http://maas.example.com:5240/MAAS"
	case e.Status == 0:
		return e.Message, "check " + n.Endpoint + ", the firewall, and that MAAS's region controller runs"
	case e.Status < 300:
		return "a server responds that is not MAAS (" + e.Message + ")", "does " + n.Endpoint + " lead to MAAS?"
	}
	return fmt.Sprintf("MAAS responds %d: %s", e.Status, e.Message),
		"MAAS's log, maas.log and regiond.log, may have the reason"
}

// isElsewhere reports whether there is no API of MAAS at the endpoint: every MAAS has all lists.
func (e *Error) isElsewhere() bool {
	return e.Status == http.StatusNotFound && e.Method == http.MethodGet && !strings.Contains(e.Endpoint, "{")
}

// IsElsewhere reports whether the server that responds has no API of MAAS where the endpoint leads.
func IsElsewhere(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.isElsewhere()
}

// certificate is Explain for a certificate that can't be verified. It leaves out what differs from try to try:
// Go's text for an expired one has the present time.
func (n Names) certificate(problem error) (found, remedy string) {
	var invalid x509.CertificateInvalidError
	found = "MAAS's certificate can't be verified: "
	switch {
	case errors.As(problem, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		from, to := invalid.Cert.NotBefore.UTC().Format(time.DateOnly), invalid.Cert.NotAfter.UTC().Format(time.DateOnly)
		return found + "it is valid from " + from + " to " + to,
			"renew MAAS's certificate; if it is valid now, correct the clock here"
	case guard.Is[x509.HostnameError](problem):
		return found + problem.Error(), n.Endpoint + " has to have a name that it is valid for"
	}
	return found + problem.Error(), "put the authority that signed it into " + n.CABundle
}
