// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"context"
	"encoding/base64"
	"slices"

	"github.com/canonical/lxd/shared"
	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
)

// Trust makes LXD trust a client's certificate (PEM), under a name, for one project only: an unrestricted certificate
// may change all of LXD. The project must exist. Trust reports whether it changed anything. It removes no certificate,
// see Distrust. The error is an *Error.
//
// A certificate of this name that LXD trusts for more, or for another project, is restricted. A certificate of another
// name belongs to another client and is not changed; but if LXD keeps it for another purpose than clients, that is an
// error.
func (n *Node) Trust(ctx context.Context, name, project string, certificate []byte) (changed bool, err error) {
	parsed, err := ParseCertificate(certificate)
	if err != nil {
		return false, &Error{Step: StepTrust, Problem: "the client's certificate: " + err.Error(), Permanent: true}
	}
	err = n.call(ctx, StepTrust, "adding the certificate "+name, func(client *lxdapi.Client) error {
		found, state, err := ensure(true, client.GetCertificate, shared.CertFingerprint(parsed), func() error {
			return client.Post(client.Path("certificates"), api.CertificatesPost{
				Name: name, Type: api.CertificateTypeClient, Certificate: base64.StdEncoding.EncodeToString(parsed.Raw),
				Restricted: true, Projects: []string{project},
			})
		})
		switch changed = state == Changed; {
		case err != nil:
			return err
		case found.Type != api.CertificateTypeClient:
			return &Error{Step: StepTrust, Permanent: true,
				Problem: "LXD knows the certificate " + name + " as one of type " + found.Type,
				Remedy:  "`lxc config trust remove " + found.Fingerprint + "`"}
		case found.Name == name && (!found.Restricted || !slices.Equal(found.Projects, []string{project})):
			changed = true
			return restrict(client, found.Fingerprint, project)
		}
		return nil
	})
	return changed, err
}

// restrict limits a certificate to a project.
func restrict(client *lxdapi.Client, fingerprint, project string) error {
	found, etag, err := client.GetCertificate(fingerprint)
	if err == nil {
		put := found.Writable()
		put.Restricted, put.Projects = true, []string{project}
		err = client.Put(client.Path("certificates", fingerprint), put, etag)
	}
	if err != nil {
		return asError(StepTrust, "restricting the certificate "+fingerprint+" to the project "+project, err)
	}
	return nil
}

// Distrust removes from LXD's trust store the client certificates for which ours returns true, by the name in the store
// and the common name in the certificate, except the one to keep (PEM, or nil). The error is an *Error.
func (n *Node) Distrust(ctx context.Context, ours func(name, commonName string) bool, keep []byte) error {
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

// Earlier returns the fingerprints of the client certificates that Distrust would remove. The error is an *Error.
func (n *Node) Earlier(
	ctx context.Context, ours func(name, commonName string) bool, keep []byte,
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
	for _, each := range certificates {
		if each.Type == api.CertificateTypeClient && each.Fingerprint != keepFingerprint &&
			ours(each.Name, commonName(each)) {
			fingerprints = append(fingerprints, each.Fingerprint)
		}
	}
	return fingerprints, err
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

// commonName returns the common name of a certificate's subject, or "".
func commonName(c api.Certificate) string {
	parsed, err := ParseCertificate([]byte(c.Certificate))
	if err != nil {
		return ""
	}
	return parsed.Subject.CommonName
}
