//go:build !f11

package main

// Editions after fall 2011: who wants a lease is named by an address.
type LeaseClient = string

func leaseClient(address string, id uint32) LeaseClient { return address }
