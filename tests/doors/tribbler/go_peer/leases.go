package main

import (
	"fmt"
	"net/rpc"
	"time"
)

const leaseSeconds = 5

// Holder is asked for its leases, and gives them back when it is told to.
type Holder struct {
	asked  chan string
	giveUp chan int
}

func (holder *Holder) RevokeLease(args *RevokeLeaseArgs, reply *StatusReply) error {
	holder.asked <- args.Key
	reply.Status = <-holder.giveUp
	return nil
}

// leases holds leases of its own, of a value and of a list, under the name that a service has with the holder.
func leases(connections []*rpc.Client, service string) {
	holder := &Holder{make(chan string, 10), make(chan int, 10)}
	address := serve(service, holder)
	for n, client := range connections {
		key := fmt.Sprintf("%s%d:value", service, n)
		expect("a lease of nothing", get(client, key, address), GetReply{Status: keyNotFound})
		expect("Put", status(client, "StorageRPC.Put", PutArgs{key, "old"}), ok)
		expect("no lease", get(client, key, "").Lease, Lease{})
		granted := time.Now()
		expect("the lease", get(client, key, address), GetReply{Value: "old", Lease: Lease{true, leaseSeconds}})

		done := make(chan *rpc.Call, 2)
		client.Go("StorageRPC.Put", PutArgs{key, "new"}, &StatusReply{}, done)
		expect("what is asked for", <-holder.asked, key)
		// The revocation is under way. Other keys do not know of it, and this one has its old value.
		expect("Put of another key", status(client, "StorageRPC.Put", PutArgs{key + "2", "v"}), ok)
		meanwhile := get(client, key, address)
		client.Go("StorageRPC.Put", PutArgs{key, "newer"}, &StatusReply{}, done)
		if time.Since(granted) < leaseSeconds*time.Second {
			expect("what is read meanwhile", meanwhile, GetReply{Value: "old"})
			expect("the number of changes", len(done), 0)
		}
		holder.giveUp <- ok
		for range cap(done) {
			call := <-done
			must(call.Error)
			expect("Put", call.Reply.(*StatusReply).Status, ok)
		}
		value := get(client, key, address)
		expect("that a change was seen", value.Value == "new" || value.Value == "newer", true)
		expect("the lease afterwards", value.Lease, Lease{true, leaseSeconds})
		expect("the number of questions", len(holder.asked), 0)

		list := fmt.Sprintf("%s%d:list", service, n)
		expect("AppendToList", status(client, "StorageRPC.AppendToList", PutArgs{list, "a"}), ok)
		for _, change := range []string{"AppendToList", "RemoveFromList"} {
			expect("the lease", getList(client, list, address).Lease, Lease{true, leaseSeconds})
			holder.giveUp <- ok
			expect(change, status(client, "StorageRPC."+change, PutArgs{list, "b"}), ok)
			expect("what is asked for", <-holder.asked, list)
		}
		expect("the list", fmt.Sprint(getList(client, list, "").Value), "[a]")
	}
}
