#include <moonferry.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <stdatomic.h>
static mf_tensor*X,*Y,*srcT; static _Atomic int stop; static long copies;
static void die(mf_error*e){puts(e->message);exit(1);}
static void*copier(void*a){mf_error e; while(!stop){ if(mf_tensor_copy(X,srcT,&e))die(&e); copies++;} return 0;}
int main(int c,char**v){ int type=atoi(v[1]); mf_error e; int64_t sh[6]={9,9,9,9,9,2},s5[5]={9,9,9,9,9}; DLTensor L={.ndim=6,.shape=sh,.dtype={kDLFloat,32,1},.device={type,0}},S=L,H=L; S.ndim=5;S.shape=s5; H=S;H.device=(DLDevice){kDLCPU,0};
 mf_tensor*d,*s,*h; if(mf_tensor_create(&L,0,&d,&e)||mf_tensor_create(&S,0,&s,&e)||mf_tensor_create(&H,0,&h,&e))die(&e);
 mf_scalar z={.kind=MF_KIND_FLOAT,.f=0}; if(mf_tensor_fill(d,&z,&e)||mf_tensor_fill(s,&z,&e))die(&e);
 mf_index it[2]={{.kind=MF_INDEX_ELLIPSIS},{.kind=MF_INDEX_AT,.start=0}}; if(mf_tensor_index(d,it,2,&X,&e))die(&e); it[1].start=1; if(mf_tensor_index(d,it,2,&Y,&e)||mf_tensor_permute(s,NULL,0,&srcT,&e))die(&e);
 pthread_t t; pthread_create(&t,0,copier,0); long lost=0,i; for(i=1;i<=20;i++){ mf_scalar k={.kind=MF_KIND_FLOAT,.f=(double)i}; if(mf_tensor_fill(Y,&k,&e))die(&e); if(mf_tensor_copy(h,Y,&e))die(&e); const float*p=mf_tensor_dltensor(h)->data; int bad=0; for(int j=0;j<59049;j++)bad|=p[j]!=(float)i; lost+=bad;} stop=1; pthread_join(t,0);
 printf("device type %d: %ld of %ld fills of the odd elements were overwritten by a copy to the even ones (%ld copies)\n",type,lost,i-1,copies); fflush(stdout); _Exit(0);}
