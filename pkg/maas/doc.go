// SPDX-License-Identifier: Apache-2.0

// Package maas is a typed client of MAAS's REST API 2.0.
//
// It signs and sends through gomaasapi, and adds what that lacks: contexts, kept-alive connections, a timeout for each
// call, a rate limit, metrics, and typed errors. Each method names the endpoint it calls. "For administrators" is so up
// to MAAS 3.7; from 3.8 on, it is for users with the entitlement that package rights names.
package maas
