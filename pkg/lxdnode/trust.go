// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/canonical/lxd/shared"
	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
)

// nameDigits is how much of a certificate's fingerprint is in its name; LXD's own lists show as much.
const nameDigits = 12

// nameOf returns the name of a client's certificate in LXD's trust store: the client's own, and the first digits of the
// certificate's fingerprint. A client has two certificates while one replaces the other, and LXD 5.21.5 and 6.6 refuse
// two of one name.
func nameOf(client string, certificate *x509.Certificate) string {
	return client + "-" + shared.CertFingerprint(certificate)[:nameDigits]
}

// clientOf returns the client that Trust added a certificate for; "" for one that it did not add. The name must be
// the one that Trust makes of this certificate. An earlier release gave it the client's name alone: that proves nothing
// unless the certificate was also made for it. A common name alone proves nothing.
func clientOf(c api.Certificate) string {
	parsed, err := ParseCertificate([]byte(c.Certificate))
	if err != nil {
		return ""
	}
	if client, is := strings.CutSuffix(c.Name, nameOf("", parsed)); is {
		return client
	}
	if parsed.Subject.CommonName == CommonName(c.Name) {
		return c.Name
	}
	return ""
}

// Trust makes LXD trust a client's certificate (PEM), for one project only: an unrestricted certificate may change all
// of LXD. name is the client's; in LXD's trust store, the first digits of the fingerprint follow it. The project must
// exist. Trust reports whether it changed anything. It removes no certificate, see Distrust. The error is an *Error.
//
// A certificate of this client that LXD trusts for all projects, or for another one that has no VMs, is restricted.
// While a project that one is for has VMs, nothing is changed, and that is an error: MAAS uses the certificate for
// them. One that LXD knows by another name belongs to another client, too, and is not changed; but if LXD keeps it for
// another purpose than clients, that is an error, as is another certificate with the name.
func (n *Node) Trust(ctx context.Context, name, project string, certificate []byte) (changed bool, err error) {
	parsed, err := ParseCertificate(certificate)
	if err != nil {
		return false, &Error{Step: StepTrust, Problem: "the client's certificate: " + err.Error(), Permanent: true}
	}
	post := api.CertificatesPost{
		Name: nameOf(name, parsed), Type: api.CertificateTypeClient, Restricted: true, Projects: []string{project},
		Certificate: base64.StdEncoding.EncodeToString(parsed.Raw),
	}
	err = n.call(ctx, StepTrust, "adding the certificate "+post.Name, func(client *lxdapi.Client) error {
		if err := mayLeave(client, name, project); err != nil {
			return err
		}
		fingerprint := shared.CertFingerprint(parsed)
		found, err := stored(client, fingerprint, post.Name)
		if err == nil && found == nil {
			changed = true
			found, err = add(client, fingerprint, post)
		}
		if err != nil {
			return err
		}
		isOurs := clientOf(*found) == name
		switch {
		case found.Type != api.CertificateTypeClient:
			return &Error{Step: StepTrust, Permanent: true,
				Problem: "LXD knows the certificate " + post.Name + " as one of type " + found.Type,
				Remedy:  "`lxc config trust remove " + fingerprint + "`"}
		case isOurs && isFor(*found, project):
			return nil
		case isOurs || found.Name == name: // by that alone it is not found again
			changed = true
			return restrict(client, fingerprint, post)
		}
		return nil
	})
	return changed, err
}

// isFor reports whether a certificate is for some projects only, of which this is one.
func isFor(c api.Certificate, project string) bool {
	return c.Restricted && slices.Contains(c.Projects, project)
}

// mayLeave returns an error if a certificate of a client is for another project, and that has VMs: MAAS has the
// certificate in the power parameters of each of them. One that is replaced is removed later.
func mayLeave(client *lxdapi.Client, name, project string) error {
	certificates, err := client.GetCertificates()
	if err != nil {
		return err
	}
	for _, c := range certificates {
		if clientOf(c) != name || !c.Restricted || isFor(c, project) {
			continue
		}
		for _, other := range c.Projects {
			vms, err := client.In(other).GetInstanceNames(api.InstanceTypeVM)
			if err != nil {
				return err
			}
			if len(vms) > 0 {
				return &Error{Step: StepTrust, Permanent: true,
					Problem: fmt.Sprintf("the certificate %s is for the project %s, which has %d VM(s), and MAAS could not switch "+
						"or delete them any more if it was for the project %s", c.Name, other, len(vms), project),
					Remedy: fmt.Sprintf("put the project back to %s (value lxdInitializer.project), or delete these VMs first", other)}
			}
		}
	}
	return nil
}

// stored returns the certificate of a fingerprint in LXD's trust store, or nil. It is an error if there is none, and
// another certificate has the name that it is to get.
func stored(client *lxdapi.Client, fingerprint, name string) (*api.Certificate, error) {
	certificates, err := client.GetCertificates()
	if err != nil {
		return nil, err
	}
	is := func(c api.Certificate) bool { return c.Fingerprint == fingerprint }
	if found := list.Find(certificates, is); found != nil {
		return found, nil
	}
	has := func(c api.Certificate) bool { return c.Name == name }
	if other := list.Find(certificates, has); other != nil {
		return nil, &Error{Step: StepTrust, Permanent: true,
			Problem: fmt.Sprintf("another certificate in LXD's trust store, %s, has the name %s", other.Fingerprint, name),
			Remedy: fmt.Sprintf("rename it with `lxc config trust edit %s`, or remove it, if nothing uses it, with `lxc "+
				"config trust remove %[1]s`", other.Fingerprint)}
	}
	return nil, nil
}

// add adds a certificate, and reads it. The result of the reading counts, not that of the call: its response may have
// been lost, or another client may have been faster.
func add(client *lxdapi.Client, fingerprint string, post api.CertificatesPost) (*api.Certificate, error) {
	failed := client.Post(client.Path("certificates"), post)
	found, err := stored(client, fingerprint, post.Name)
	switch {
	case found != nil || guard.Is[*Error](err):
		return found, err
	case api.StatusErrorCheck(failed, http.StatusConflict) && err == nil:
		return nil, &Error{Step: StepTrust, Permanent: true, cause: failed,
			Problem: fmt.Sprintf("an identity that is not in LXD's list of certificates has the name %s, or this "+
				"certificate, %s", post.Name, fingerprint),
			Remedy: "find it with `lxc auth identity list`, and delete it, if nothing uses it"}
	case failed != nil || err != nil:
		return nil, cmp.Or(failed, err)
	}
	return nil, &Error{Step: StepTrust, Problem: "the certificate " + post.Name + " was removed as soon as it was added"}
}

// restrict limits a certificate to a project, and gives it its name.
func restrict(client *lxdapi.Client, fingerprint string, as api.CertificatesPost) error {
	found, etag, err := client.GetCertificate(fingerprint)
	if err == nil {
		put := found.Writable()
		put.Name, put.Restricted, put.Projects = as.Name, true, as.Projects
		err = client.Put(client.Path("certificates", fingerprint), put, etag)
	}
	if err != nil {
		return asError(StepTrust, "restricting the certificate "+fingerprint+" to the project "+as.Projects[0], err)
	}
	return nil
}

// Trusts reports whether LXD trusts a client's certificate (PEM), under any name. The error is an *Error.
func (n *Node) Trusts(ctx context.Context, certificate []byte) (trusted bool, err error) {
	fingerprint, err := Fingerprint(certificate)
	if err != nil {
		return false, &Error{Step: StepTrust, Problem: "the client's certificate: " + err.Error(), Permanent: true}
	}
	err = n.call(ctx, StepTrust, "reading the certificates", func(client *lxdapi.Client) error {
		found, _, err := client.GetCertificate(fingerprint)
		trusted = err == nil && found.Type == api.CertificateTypeClient
		if notFound(err) {
			return nil
		}
		return err
	})
	return trusted, err
}

// Distrust removes from LXD's trust store the certificates of those clients for which ours returns true, by the names
// that Trust was given, except the one to keep (PEM, or nil). The error is an *Error.
func (n *Node) Distrust(ctx context.Context, ours func(client string) bool, keep []byte) error {
	earlier, err := n.Earlier(ctx, ours, keep)
	if err != nil {
		return err
	}
	for _, each := range earlier {
		if err := n.Forget(ctx, each); err != nil {
			return err
		}
	}
	return nil
}

// Earlier returns the fingerprints of the certificates that Distrust would remove, the one that was made first at
// first. The error is an *Error.
func (n *Node) Earlier(
	ctx context.Context, ours func(client string) bool, keep []byte,
) (fingerprints []string, err error) {
	keepFingerprint := ""
	if keep != nil {
		if keepFingerprint, err = Fingerprint(keep); err != nil {
			return nil, &Error{Step: StepTrust, Problem: "the certificate to keep: " + err.Error(), Permanent: true}
		}
	}
	var certificates []api.Certificate
	err = n.call(ctx, StepTrust, "reading the certificates", func(client *lxdapi.Client) (err error) {
		certificates, err = client.GetCertificates()
		return err
	})
	if err != nil {
		return nil, err
	}
	certificates = list.Where(certificates, func(c api.Certificate) bool {
		client := clientOf(c)
		return c.Type == api.CertificateTypeClient && c.Fingerprint != keepFingerprint && client != "" && ours(client)
	})
	slices.SortStableFunc(certificates, func(a, b api.Certificate) int { return madeAt(a).Compare(madeAt(b)) })
	return list.Each(certificates, func(c api.Certificate) string { return c.Fingerprint }), nil
}

// Forget removes a certificate from LXD's trust store; it may be gone. The error is an *Error.
func (n *Node) Forget(ctx context.Context, fingerprint string) error {
	return n.call(ctx, StepTrust, "removing the certificate "+fingerprint, func(client *lxdapi.Client) error {
		if err := client.Delete(client.Path("certificates", fingerprint)); !notFound(err) {
			return err
		}
		return nil
	})
}

// madeAt returns when a certificate's validity begins; the zero time if it is no certificate.
func madeAt(c api.Certificate) time.Time {
	parsed, err := ParseCertificate([]byte(c.Certificate))
	if err != nil {
		return time.Time{}
	}
	return parsed.NotBefore
}
