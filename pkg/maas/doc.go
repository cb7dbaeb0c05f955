// SPDX-License-Identifier: Apache-2.0

// Package maas is a typed client of MAAS's REST API 2.0.
//
// It signs and sends through gomaasapi, and adds what that lacks: contexts, kept-alive connections, a timeout for each
// call, a rate limit, metrics, and typed errors. Each method names the endpoint it calls.
package maas
