//go:build f11

package main

// Edition is that of fall 2011: who wants a lease is named as in a registration.
type LeaseClient = Client

func leaseClient(address string, id uint32) LeaseClient { return Client{address, id} }
