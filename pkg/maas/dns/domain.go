// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

const (
	// domainMaxAge is how old the list of domains may be for a cluster that uses one already.
	domainMaxAge = 10 * time.Minute
	// domainRetry is how old it may be for a new cluster, and how often MAAS is asked for a domain that it does not
	// serve.
	domainRetry = 5 * time.Second
	// maxNamed is how many domains, or subnets, a message names.
	maxNamed = 5
)

// DomainProblem is why MAAS's DNS does not serve the names in a domain.
type DomainProblem string

const (
	// DomainNotFound means that MAAS has no such domain.
	DomainNotFound DomainProblem = "NotFound"
	// DomainNotAuthoritative means that MAAS has the domain, and keeps no zone for it.
	DomainNotAuthoritative DomainProblem = "NotAuthoritative"
)

// DomainError is a domain in which MAAS can't serve a name.
type DomainError struct {
	Problem DomainProblem
	Domain  string
	// Others are the domains that MAAS serves, if they are known.
	Others []string
}

// Found says what MAAS has.
func (e *DomainError) Found() string {
	if e.Problem == DomainNotAuthoritative {
		return fmt.Sprintf("MAAS has the domain %s, but is not authoritative for it, so that its DNS answers for no name "+
			"there", e.Domain)
	}
	if len(e.Others) == 0 {
		return fmt.Sprintf("MAAS does not serve the domain %s", e.Domain)
	}
	return fmt.Sprintf("MAAS does not serve the domain %s, only %s", e.Domain, text.List(e.Others, maxNamed))
}

// Remedy says what to do.
func (e *DomainError) Remedy() string {
	if e.Problem == DomainNotAuthoritative {
		return "make it authoritative in MAAS, or name another domain in spec.dnsDomain"
	}
	return "create it in MAAS, or name another domain in spec.dnsDomain"
}

// Error names the domain, the problem, and the remedy.
func (e *DomainError) Error() string { return e.Found() + ": " + e.Remedy() }

// CheckDomain returns a *DomainError if MAAS, which has these domains, does not serve the one of a name. MAAS finds
// domains by their exact names, and writes zones only for those that it is authoritative for.
func CheckDomain(domains []maas.Domain, name string) error {
	missing := &DomainError{Problem: DomainNotFound, Domain: name}
	for _, domain := range domains {
		switch {
		case domain.Name == name && domain.Authoritative:
			return nil
		case domain.Name == name:
			missing.Problem = DomainNotAuthoritative
		case domain.Authoritative:
			missing.Others = append(missing.Others, domain.Name)
		}
	}
	slices.Sort(missing.Others)
	return missing
}

// CheckDomain returns a *DomainError if MAAS does not serve a domain. For a cluster that does not use it yet, isNew,
// the list of the domains is a recent one.
func (s *Service) CheckDomain(ctx context.Context, name string, isNew bool) error {
	ages := []time.Duration{domainMaxAge, domainRetry}
	if isNew {
		ages = ages[1:]
	}
	var missing error
	for _, age := range ages {
		domains, err := s.inventory.Domains(ctx, age)
		if err != nil {
			return fmt.Errorf("listing MAAS's DNS domains: %w", err)
		}
		if missing = CheckDomain(domains, name); missing == nil {
			return nil
		}
	}
	return missing
}

// withoutDomain returns the error of a call that named a domain which MAAS does not find.
func withoutDomain(fqdn string) error {
	_, domain, _ := strings.Cut(fqdn, ".")
	return &DomainError{Problem: DomainNotFound, Domain: domain}
}
