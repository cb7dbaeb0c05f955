// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"context"
	"encoding/base64"
	"net/http"

	"github.com/canonical/lxd/shared/api"
)

// Trust makes LXD trust a client's certificate (PEM), under a name. It tells whether LXD did not before. No
// certificate is removed, see Distrust. The error is an *Error.
//
// A certificate that is there already is left as it is, so an operator may restrict it to MAAS's project; only one that LXD keeps
// for something else than clients is put right.
func (n *Node) Trust(ctx context.Context, name string, certificate []byte) (changed bool, err error) {
	der, err := decodeCertificate(certificate)
	if err != nil {
		return false, &Error{Step: StepTrust, Problem: "the client's certificate: " + err.Error(), Permanent: true}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	client, err := n.client(ctx)
	if err != nil {
		return false, asError(StepTrust, "asking for the certificate "+name, err)
	}
	found, state, err := ensure(true,
		func() (*api.Certificate, error) {
			found, _, err := client.GetCertificate(fingerprint(der))
			return found, err
		},
		func() error {
			return client.CreateCertificate(api.CertificatesPost{
				Name: name, Type: api.CertificateTypeClient, Certificate: base64.StdEncoding.EncodeToString(der),
			})
		})
	if err != nil {
		return false, asError(StepTrust, "adding the certificate "+name, err)
	}
	if found.Type != api.CertificateTypeClient {
		return false, &Error{Step: StepTrust, Permanent: true,
			Problem: "LXD knows the certificate " + name + " as one of type " + found.Type,
			Remedy:  "`lxc config trust remove " + found.Fingerprint + "`"}
	}
	return state == Changed, nil
}

// Distrust removes the client certificates of this name from LXD's trust store, but for the one to keep (PEM, or nil). It
// tells how many it removed. Certificates of other names are none of its business. The error is an *Error.
func (n *Node) Distrust(ctx context.Context, name string, keep []byte) (removed int, err error) {
	keepFingerprint := ""
	if keep != nil {
		if keepFingerprint, err = Fingerprint(keep); err != nil {
			return 0, &Error{Step: StepTrust, Problem: "the certificate to keep: " + err.Error(), Permanent: true}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	client, err := n.client(ctx)
	if err != nil {
		return 0, asError(StepTrust, "asking for the certificates", err)
	}
	certificates, err := client.GetCertificates()
	if err != nil {
		return 0, asError(StepTrust, "asking for the certificates", err)
	}
	for _, each := range certificates {
		if each.Name != name || each.Type != api.CertificateTypeClient || each.Fingerprint == keepFingerprint {
			continue
		}
		err := client.DeleteCertificate(each.Fingerprint)
		switch {
		case err == nil:
			removed++
		case !api.StatusErrorCheck(err, http.StatusNotFound):
			return removed, asError(StepTrust, "removing the certificate "+name, err)
		}
	}
	return removed, nil
}
